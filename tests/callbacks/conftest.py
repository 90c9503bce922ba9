"""A real run of a few iterations, with the callbacks under test."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import TensorBoardLogger

from datamodules.rollout import RolloutDataModule
from modules.ppo.ppo import PPO

STEPS_PER_ITERATION = 32


class Run(NamedTuple):
    """What a test holds of a run."""

    trainer: Trainer
    module: PPO
    data: RolloutDataModule
    folder: Path

    def fit(self, ckpt_path: str | Path | None = None) -> "Run":
        self.trainer.fit(self.module, self.data, ckpt_path=ckpt_path, weights_only=True)
        return self


@pytest.fixture
def make_run(tmp_path: Path) -> Any:
    """Makes a PPO run of 32 steps an iteration, evaluated every second iteration; nothing has run yet."""

    def make(
        *callbacks: Callback,
        iterations: int = 4,
        env: str = "CartPole-v1",
        version: str = "run",
        policy_lag: int = 0,
        **trainer: Any,
    ) -> Run:
        sizes: dict[str, Any] = {
            "num_envs": 4,
            "rollout_length": 8,
            "total_env_steps": iterations * STEPS_PER_ITERATION,
        }
        data = RolloutDataModule(env, **sizes, eval_episodes=2, policy_lag=policy_lag)
        module = PPO(data.spaces, update_epochs=1, num_minibatches=2)
        logger = TensorBoardLogger(tmp_path, name="experiment", version=version, default_hp_metric=False)
        settings = {
            "accelerator": "cpu",
            "max_epochs": 1,
            "check_val_every_n_epoch": None,
            "val_check_interval": 2,
            "num_sanity_val_steps": 0,
            "use_distributed_sampler": False,
            "enable_model_summary": False,
            "enable_progress_bar": False,
            "enable_checkpointing": any(hasattr(callback, "best_model_path") for callback in callbacks),
            "logger": logger,
            "default_root_dir": tmp_path,
            "log_every_n_steps": 1,
        }
        return Run(Trainer(callbacks=list(callbacks), **(settings | trainer)), module, data, Path(logger.log_dir))

    return make
