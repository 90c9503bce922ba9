"""Environments whose difficulty follows the progress of a run."""

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback

from datamodules.core.errors import ConfigurationError
from datamodules.rollout import RolloutDataModule
from tests.support.small_runs import fitted

WORLD = {"num_agents": 2, "size": 6, "view": 3, "mines": 1, "generators": 1, "num_maps": 4, "time_limit": 16}


def world_data(**changes: Any) -> RolloutDataModule:
    env_kwargs = {**WORLD, "altars": 1, "start_altars": 5, "altar_hearts": 0, "start_altar_hearts": 4}
    settings: dict[str, Any] = {"env_kwargs": env_kwargs, "num_envs": 4, "rollout_length": 16, "total_env_steps": 320}
    return RolloutDataModule("GridWorld-v0", **{**settings, "eval_episodes": 4, "append_obs": ["agent_id"], **changes})


class Altars(Callback):
    """Notes the altars of the training environments after every rollout, and of the evaluated ones."""

    def __init__(self) -> None:
        self.trained: list[int] = []
        self.evaluated: set[int] = set()

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        envs = trainer.datamodule.collector.envs.unwrapped
        self.trained.append(int(envs.state["end"][0]) - envs.env.num_lasting)

    def on_validation_end(self, trainer: Any, *_: Any) -> None:
        envs = trainer.datamodule._eval_envs.unwrapped
        self.evaluated |= set((envs.state["end"] - envs.env.num_lasting).tolist())


def test_a_run_trains_on_fewer_and_fewer_altars_and_is_evaluated_on_the_fewest(tmp_path: Path) -> None:
    altars = Altars()
    fitted(tmp_path, world_data(), altars, val_check_interval=1)
    assert altars.trained == [5, 4, 3, 3, 2]
    assert altars.evaluated == {1}


def test_a_run_without_a_curriculum_does_not_ask_for_progress(tmp_path: Path) -> None:
    altars = Altars()
    fitted(tmp_path, world_data(env_kwargs=WORLD | {"altars": 2}), altars)
    assert set(altars.trained) == {2}


def test_collecting_ahead_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"set data\.policy_lag to 0"):
        fitted(tmp_path, world_data(policy_lag=1))
