"""Every callback and logger of Lightning works, or is refused in one sentence, as the documentation says."""

from pathlib import Path

import lightning.pytorch.callbacks
import lightning.pytorch.loggers
import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import EMAWeightAveraging

from datamodules.core.errors import ConfigurationError
from modules.base.trainer_checks import UNUSABLE, check_averages, check_callbacks
from modules.sac.sac import SAC
from tests.support.small_runs import cartpole_data, fitted
from tests.support.trainer_features import RUNS, TABLE, features, tried

ALLOWED = {"works", "refused", "needs a package"}


class Recorded(Callback):
    """Keeps the weights after every iteration."""

    def __init__(self) -> None:
        self.weights: list[dict[str, torch.Tensor]] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: torch.nn.Module, *_: object) -> None:
        self.weights.append({name: tensor.clone() for name, tensor in pl_module.state_dict().items()})


def documented() -> dict[str, list[str]]:
    """The cells of the documentation's table by feature: one a config, then the note."""
    rows = [line.strip("|").split(" | ") for line in TABLE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    return {name.strip(): [cell.strip() for cell in cells] for name, *cells in rows[1:]}


def test_the_documentation_has_every_callback_and_logger_of_lightning() -> None:
    shipped = {*lightning.pytorch.callbacks.__all__, *lightning.pytorch.loggers.__all__}

    assert shipped == set(features()) == set(documented()), "run `python -m tests.support.trainer_features`"
    assert all(set(cells[:-1]) <= ALLOWED for cells in documented().values())


def test_the_documentation_gives_the_sentences_of_refused_callbacks() -> None:
    for kind, why in UNUSABLE.items():
        assert documented()[kind.__name__] == ["refused"] * 3 + [f"The callback {kind.__name__} {why}."]


@pytest.mark.parametrize("kind", UNUSABLE, ids=[kind.__name__ for kind in UNUSABLE])
def test_a_callback_that_cannot_act_is_refused_and_a_subclass_is_not(kind: type) -> None:
    with pytest.raises(ConfigurationError, match=f"^The callback {kind.__name__} .*: .*\\.$"):
        check_callbacks([kind.__new__(kind)])
    mine = type("Mine", (kind,), {})
    check_callbacks([mine.__new__(mine)])


@pytest.mark.parametrize("feature", ["LearningRateMonitor", "Timer", "WandbLogger"])
def test_what_once_ended_in_a_traceback_does_what_the_documentation_says(feature: str) -> None:
    assert tried(feature, "ppo_cartpole").outcome in {documented()[feature][0], "works"}


@pytest.mark.slow
@pytest.mark.parametrize("config", RUNS)
@pytest.mark.parametrize("feature", features())
def test_a_feature_does_what_the_documentation_says(feature: str, config: str) -> None:
    said = documented()[feature][list(RUNS).index(config)]

    found = tried(feature, config)

    assert found.outcome == said or (said, found.outcome) == ("needs a package", "works"), found.note
    assert "\n" not in found.note


def test_the_moving_average_of_the_weights_is_that_of_every_iteration(tmp_path: Path) -> None:
    recorded = Recorded()

    model = fitted(tmp_path, cartpole_data(), EMAWeightAveraging(decay=0.5), recorded, val_check_interval=3)

    assert len(recorded.weights) == 10
    for name, final in model.state_dict().items():
        average = recorded.weights[0][name].double()
        for weights in recorded.weights[1:]:
            average = 0.5 * average + 0.5 * weights[name].double()
        torch.testing.assert_close(final.double(), average, rtol=1e-6, atol=1e-7)


def test_averages_of_buffers_that_have_none_are_refused() -> None:
    spaces = {"obs_shape": (3,), "obs_dtype": "float32", "action_type": "continuous", "action_sizes": []}
    spaces |= {"action_low": [-1.0], "action_high": [1.0], "action_start": [], "num_agents": 1}
    with pytest.raises(
        ConfigurationError, match="but random_warmup of SAC cannot be averaged: set its use_buffers to false"
    ):
        check_averages([EMAWeightAveraging()], SAC(spaces))
    check_averages([EMAWeightAveraging(use_buffers=False)], SAC(spaces))
