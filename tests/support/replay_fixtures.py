"""Small off-policy runs for tests."""

from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

from datamodules.replay import ReplayDataModule
from modules.dqn.dqn import DQN
from tests.support.small_runs import trainer


def replay_data(**changes: Any) -> ReplayDataModule:
    """Eight boards of 6 x 6; two updates of 32 every four vector steps; twenty iterations, the first of which waits."""
    snake = {"env": "Snake-v0", "env_kwargs": {"dim": 6, "distance_to_border": 2, "observation": "features"}}
    sizes: dict[str, Any] = {"num_envs": 8, "train_freq": 4, "batch_size": 32, "replay_ratio": 2, "capacity": 256}
    run = {"total_env_steps": 640, "learning_starts": 64, "eval_episodes": 4, "n_step": 2, "priority_alpha": 0.6}
    return ReplayDataModule(**{**snake, **sizes, **run, **changes})


def small_dqn(data: ReplayDataModule, kind: type[DQN] = DQN, **changes: Any) -> DQN:
    """A network of the default kind that explores until the end."""
    return kind(data.spaces, **{"learning_rate": 1e-3, "target_interval": 4, "epsilon_decay_steps": 500, **changes})


def fitted_dqn(
    root: Path, data: ReplayDataModule, *callbacks: Callback, ckpt_path: Path | None = None, **settings: Any
) -> DQN:
    """A small DQN trained on `data` from seed 1."""
    lightning.seed_everything(1, verbose=False)
    model = small_dqn(data, **settings)
    trainer(root, *callbacks).fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    return model
