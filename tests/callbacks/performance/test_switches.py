"""The switches of the earlier car-ball system (docs/guides/carball.md): each acts, and the summary says so."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium.wrappers import TimeLimit
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.core.errors import ConfigurationError
from datamodules.rollout import RolloutDataModule
from datamodules.worker_pool.vector_env import WorkerPoolVectorEnv
from tests.support.small_runs import Told, fitted


def carball(**changes: Any) -> RolloutDataModule:
    settings: dict[str, Any] = {"num_envs": 4, "rollout_length": 4, "total_env_steps": 32, "eval_episodes": 2}
    settings |= {"env": "Carball-v0", "env_kwargs": {"time_limit": 20}}
    return RolloutDataModule(**{**settings, **changes})


def summary(root: Path, data: RolloutDataModule, *callbacks: Callback, **changes: Any) -> dict[str, str]:
    told = Told()
    fitted(root, data, told, *callbacks, max_steps=1, **changes)
    return told.forms


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "8 ticks a step, backend device"),
        ({"backend": "sync", "wrappers": [partial(TimeLimit, max_episode_steps=10)]}, "backend sync"),
        ({"backend": "sync"}, "backend sync"),
        ({"backend": "async"}, "backend async"),
        ({"backend": "pool", "num_workers": 1}, "backend pool of 1 worker"),
        ({"env": "CartPole-v1", "env_kwargs": {}, "backend": "pool", "num_workers": 2}, "backend pool of 2 workers"),
        ({"env_kwargs": {"action_repeat": 2, "tick_skip": 4}}, "8 ticks a step"),
        ({"env_kwargs": {"action_repeat": 3}}, "24 ticks a step"),
    ],
)
def test_environments_are_stepped_in_processes_or_in_this_one(
    settings: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert said in summary(tmp_path, carball(**settings))["environments"]


def test_the_type_of_mixed_precision_is_that_of_the_run(tmp_path: Path) -> None:
    class Types(Callback):
        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
            with trainer.precision_plugin.forward_context():
                self.dtype = pl_module.network(torch.zeros(2, 180), {}, torch.zeros(2))[0].dtype

    for precision, dtype in (("32-true", torch.float32), ("bf16-mixed", torch.bfloat16)):
        types = Types()
        forms = summary(tmp_path, carball(), types, precision=precision)
        assert forms["precision"].startswith(precision) and types.dtype is dtype


def test_pinned_memory_can_be_left_out() -> None:
    pool = object.__new__(WorkerPoolVectorEnv)
    pool.device = torch.device("cuda")

    pool._pin(pin_memory=False)

    assert not pool.pinned


def test_pinned_memory_is_refused_without_a_pool() -> None:
    with pytest.raises(ConfigurationError, match=r"data\.pin_memory is false and data\.backend sync; only"):
        carball(backend="sync", pin_memory=False)


@pytest.mark.parametrize("settings", [{"num_workers": 2}, {"num_workers": 0, "backend": "pool"}])
def test_workers_that_there_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="give at least 1 process, of the backend pool"):
        carball(**settings)


def test_a_run_stops_when_its_evaluations_do_not_rise_for_the_patience(tmp_path: Path) -> None:
    stopping = EarlyStopping(monitor="eval/return_mean", mode="max", min_delta=1e9, patience=2)

    model = fitted(tmp_path, carball(total_env_steps=320), stopping, val_check_interval=1)

    assert model.trainer.global_step == 3  # one maximum, and two evaluations without another


@pytest.mark.parametrize("number", [1, 3])
def test_so_many_of_the_best_checkpoints_are_kept(number: int, tmp_path: Path) -> None:
    checkpoint = RunCheckpoint(monitor="eval/length_mean", save_top_k=number)

    fitted(tmp_path, carball(total_env_steps=96), checkpoint, val_check_interval=1)

    assert len([*tmp_path.rglob("best-*.ckpt")]) == number and len([*tmp_path.rglob("last.ckpt")]) == 1
