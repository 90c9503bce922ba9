"""Null is refused, by key, for every number that the package's classes require."""

import inspect
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Annotated, Any

import pytest
from jsonargparse import Namespace
from lightning.pytorch import Callback, LightningDataModule
from torch import nn

import callbacks
import datamodules
import modules
from app.cli.required_settings import check_required, null_settings
from datamodules.core.arguments import allows_none, null_arguments
from datamodules.core.errors import ConfigurationError
from datamodules.rollout import RolloutDataModule
from tests.app.conftest import Run

KINDS = (nn.Module, LightningDataModule, Callback)
NEEDS_A_PACKAGE = "datamodules.envs.mettagrid."
"""Modules that import a package with an environment of its own; they have no class of these kinds."""
EVERYTHING = {"model.init_args.gamma", "trainer.callbacks.init_args.every", "trainer.max_steps"}


def classes() -> list[type]:
    """Every algorithm, data module, network and callback of the package."""
    found = {
        value
        for package in (callbacks, datamodules, modules)
        for module in walk_packages(package.__path__, f"{package.__name__}.")
        if not module.name.startswith(NEEDS_A_PACKAGE)
        for value in vars(import_module(module.name)).values()
        if isinstance(value, type) and issubclass(value, KINDS) and value.__module__ == module.name
    }
    return sorted(found, key=lambda each: f"{each.__module__}.{each.__name__}")


def required_numbers() -> Iterator[tuple[type, str]]:
    """Every argument whose type is one of numbers only, with those that a class hands on to its bases."""
    for kind in classes():
        names = {name for base in kind.__mro__ for name in inspect.signature(base.__init__).parameters}
        given = dict.fromkeys(sorted(names - {"self"}))
        yield from ((kind, name) for name, hint in null_arguments(kind, given) if hint in (int, float))


NUMBERS = list(required_numbers())


@pytest.mark.parametrize(("kind", "name"), NUMBERS, ids=[f"{kind.__name__}.{name}" for kind, name in NUMBERS])
def test_null_is_refused_for_a_required_number(kind: type, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["app", "fit", f"--part.{name}", "null"])
    part = Namespace(class_path=f"{kind.__module__}.{kind.__name__}", init_args=Namespace({name: None}))

    with pytest.raises(
        ConfigurationError, match=rf"^`part.{name}` \(command line\) is `null`, but it must be a (whole )?num"
    ):
        check_required(Namespace(part=part))


def test_the_numbers_of_every_part_are_among_them() -> None:
    named = {f"{kind.__name__}.{name}" for kind, name in NUMBERS}

    assert len(NUMBERS) > 150
    assert named >= {
        "PPO.gamma",
        "SACOptions.tau",
        "TradingDataModule.num_envs",
        "ReplayDataModule.replay_ratio",
        "LSTM.hidden",
    }
    assert named >= {
        "TrainingProgress.refresh_every_s",
        "ActiveDynamics.prior_variance",
        "OfflineSequenceDataModule.steps",
        "OptionCollapseMonitor.usage",
    }


@pytest.mark.parametrize("hint", [int, float, bool, str, list[int], dict[str, Any], Annotated[int, "of envs"]], ids=str)
def test_a_type_without_none_does_not_allow_it(hint: Any) -> None:
    assert not allows_none(hint)
    assert allows_none(hint | None)


@pytest.mark.parametrize("hint", [Any, object, int | None, None | str, Annotated[int | None, "of envs"]], ids=str)
def test_a_type_with_none_allows_it(hint: Any) -> None:
    assert allows_none(hint)


def test_settings_are_searched_through_lists_and_classes_inside_classes() -> None:
    callback = Namespace(class_path="callbacks.DynamicsFigures", init_args=Namespace(every=None))
    model = Namespace(class_path="modules.PPO", init_args=Namespace(gamma=None, value_clip_range=None))
    settings = Namespace(model=model, trainer=Namespace(callbacks=[callback], max_steps=None, max_time=None))

    assert {".".join(keys) for keys, _ in null_settings(settings)} == EVERYTHING


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--model.gamma null", "`model.gamma` (command line) is `null`, but it must be a number."),
        ("--data.num_envs null", "`data.num_envs` (command line) is `null`, but it must be a whole number."),
        ("--model.optimizer=torch.optim.Adam --model.optimizer.lr null", "`model.optimizer.lr` (command line) is `nu"),
        ("--trainer.max_steps null", "`trainer.max_steps` (command line) is `null`, but it must be a whole number."),
        ("--data.eval_greedy null", "`data.eval_greedy` (command line) is `null`, but it must be true or false."),
        (
            "--model.optimizer '{class_path: torch.optim.Adam, init_args: {weight_decay: null}}'",
            "`model.optimizer.init_args.weight_decay` (command line) is `null`, but it must be a number.",
        ),
    ],
)
def test_null_on_the_command_line_is_refused_in_one_sentence(run: Run, words: str, said: str) -> None:
    outcome = run("fit", "--config", "ppo_fast.yaml", *shlex.split(words))

    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert outcome.err.startswith(said)


@pytest.mark.parametrize("name", ["num_envs", "rollout_length", "total_env_steps", "eval_max_steps"])
def test_null_is_refused_in_python_too(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^data\.{name} is null, but it must be a whole number\.$"):
        RolloutDataModule(**{"env": "CartPole-v1", name: None})


@pytest.mark.parametrize(("more", "said"), [([], "MLP"), (["--model.network.hidden", "[8]"], "given `hidden`")])
def test_a_class_for_an_argument_without_a_type_is_refused(run: Run, folder: Path, more: list[str], said: str) -> None:
    (folder / "mine.py").write_text(
        "from modules import PPO\nclass Mine(PPO):\n    def __init__(self, spaces, network=None):\n"
        "        super().__init__(spaces)\n"
    )
    data = ("--data", "RolloutDataModule", "--data.env", "CartPole-v1")

    outcome = run("fit", "--model", "mine.Mine", "--model.network", "MLP", *more, *data, "--trust", "mine")

    assert outcome.code == 2
    assert f"`model.network` is {said}, but the argument `network` has no type" in outcome.err
