"""The help of a verb begins with what the program itself can do."""

import pytest

from app.class_paths import exported_classes, short_names
from app.cli.help_text import LIGHTNING_OPTIONS, WIDTH, introduction
from modules import ALGORITHMS
from modules.base.algorithm import Algorithm
from tests.app.conftest import Run


@pytest.mark.parametrize("verb", ["fit", "test"])
def test_help_shows_data_model_and_callbacks_before_lightnings_settings(run: Run, verb: str) -> None:
    outcome = run(verb, "--help")

    texts = ("\ndata:", "\nmodel:", "\ncallbacks:", "\n  --trust MODULE", "\n  --trainer.max_time")
    places = [outcome.out.find(text) for text in texts]

    assert outcome.code == 0
    assert places == sorted(places) and places[0] > 0
    assert outcome.out.count("usage:") == 1


def test_help_names_every_class_to_choose_from() -> None:
    text = introduction("fit")

    assert all(issubclass(kind, Algorithm) == (kind.__name__ in ALGORITHMS) for kind in exported_classes("modules"))
    assert all(name in text for name in short_names() if name not in short_names("datamodules.trading"))
    assert all(option.partition(" ")[0] in text for option, _ in LIGHTNING_OPTIONS)
    assert "  algorithms           ActiveDynamics, DQN, PPO, PQN, SAC, SACBC, SACOptions\n" in text
    assert "  networks             CNN, Embedding, GRU, LSTM, MLP, MinGRU, MultiInput,\n" in text
    assert max(map(len, text.splitlines()[1:])) <= WIDTH


def test_help_of_a_class_is_that_of_its_settings(run: Run) -> None:
    outcome = run("fit", "--model.help", "PPO")

    assert outcome.code == 0
    assert "--model.gae_lambda" in outcome.out and "Trainer" not in outcome.out
    assert "torch.nn.Linear" not in outcome.out, "the classes of torch are no choice"
