"""Settings of data modules: those of the environment stand once, in EnvDataModule, and are the same everywhere."""

import argparse
from typing import Any

import pytest
from jsonargparse import ArgumentParser

from datamodules.base import EnvDataModule
from datamodules.offline import OfflineSequenceDataModule
from datamodules.replay import ReplayDataModule
from datamodules.rollout import RolloutDataModule
from datamodules.sequence import SequenceDataModule

EPISODES = {"eval_episodes", "eval_greedy", "eval_env_kwargs", "eval_max_steps"}
HIDDEN: dict[type, set[str]] = {
    RolloutDataModule: set(),
    ReplayDataModule: set(),
    SequenceDataModule: EPISODES,
    OfflineSequenceDataModule: {*EPISODES, "num_envs", "train_wrappers"},
}
"""The settings of the environment that a data module does not have, because they would not act."""
OTHER_DEFAULTS = {"num_envs", "total_env_steps"}

modules = pytest.mark.parametrize("kind", HIDDEN)


def settings(kind: type) -> dict[str, argparse.Action]:
    parser = ArgumentParser()
    parser.add_class_arguments(kind, None)
    return {action.dest: action for action in parser._actions[1:] if not action.dest.endswith("help")}


@modules
def test_a_data_module_has_the_settings_of_the_environment_with_their_types_and_help(kind: type) -> None:
    own, shared = settings(kind), settings(EnvDataModule)

    assert shared.keys() - own.keys() == HIDDEN[kind]
    for name in shared.keys() & own.keys() - {"env"}:
        assert own[name].help, name
        assert own[name].__dict__.get("_typehint") == shared[name].__dict__.get("_typehint")
        assert name in OTHER_DEFAULTS or (own[name].default, own[name].help) == (
            shared[name].default,
            shared[name].help,
        )


@modules
def test_a_data_module_made_in_python_saves_all_its_settings(kind: type) -> None:
    env = "CartPole-v1" if kind in (RolloutDataModule, ReplayDataModule) else "Duffing-v0"
    data: Any = kind(env, iterations_per_batch=2)

    assert settings(kind).keys() <= data.hparams.keys()
    assert (data.hparams["env"], data.hparams["iterations_per_batch"], data.hparams["backend"]) == (env, 2, "auto")


@pytest.mark.parametrize("name", ["horizon", "eval_greedy"])
def test_an_argument_that_a_data_module_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=name):
        SequenceDataModule("Duffing-v0", **{name: 1})
