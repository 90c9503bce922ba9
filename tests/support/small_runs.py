"""Small runs for tests: a Trainer with nothing but what the test asks for."""

import hashlib
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback, Checkpoint

from callbacks.performance.execution_summary import execution_summary
from datamodules.base import EnvDataModule
from datamodules.rollout import RolloutDataModule
from modules.base.algorithm import Algorithm
from modules.manual_backward.callback import ManualBackward
from modules.ppo.ppo import PPO


def snake_data(**changes: Any) -> RolloutDataModule:
    """Sixteen boards of 6 x 6, rollouts of 8 steps, ten iterations."""
    small: dict[str, Any] = {
        "env": "Snake-v0",
        "env_kwargs": {"dim": 6, "distance_to_border": 2, "observation": "features"},
    }
    return RolloutDataModule(
        **{**small, "num_envs": 16, "rollout_length": 8, "total_env_steps": 1280, "eval_episodes": 4, **changes}
    )


def cartpole_data(**changes: Any) -> RolloutDataModule:
    """Four cart-poles, rollouts of 16 steps, ten iterations."""
    small: dict[str, Any] = {"env": "CartPole-v1", "backend": "sync", "num_envs": 4, "rollout_length": 16}
    return RolloutDataModule(**{**small, "total_env_steps": 640, "eval_episodes": 4, **changes})


def small_ppo(data: EnvDataModule, **changes: Any) -> PPO:
    """Two passes of four minibatches, everything that has state switched on."""
    settings: dict[str, Any] = {"update_epochs": 2, "num_minibatches": 4, "learning_rate": 1e-3, "normalize_obs": True}
    return PPO(data.spaces, **{**settings, "normalize_reward": True, "learning_rate_schedule": "linear", **changes})


class Told(Callback):
    """Notes how the last iteration is executed, and whether the algorithm goes the short way."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.forms, self.manual_backward = execution_summary(trainer, pl_module), bool(pl_module.replaced_methods)


def trainer(root: Path, *callbacks: Callback, manual_backward: bool = True, **changes: Any) -> lightning.Trainer:
    """A quiet Trainer on the CPU; as in the program's runs, plain networks train without autograd."""
    settings: dict[str, Any] = {"max_epochs": 1, "check_val_every_n_epoch": None, "val_check_interval": 10_000}
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    loop = {"num_sanity_val_steps": 0, "use_distributed_sampler": False, "log_every_n_steps": 3, "devices": 1}
    checkpoints = {"enable_checkpointing": any(isinstance(callback, Checkpoint) for callback in callbacks)}
    return lightning.Trainer(
        default_root_dir=root,
        callbacks=[*callbacks, *[ManualBackward()] * manual_backward],
        **{**settings, **quiet, **loop, **checkpoints, **changes},
    )


def fitted(
    root: Path,
    data: EnvDataModule,
    *callbacks: Callback,
    ckpt_path: Path | None = None,
    learning_rate_schedule: str = "linear",
    **changes: Any,
) -> PPO:
    """A small PPO trained on `data` from seed 1; `changes` are the Trainer's."""
    lightning.seed_everything(1, verbose=False)
    model = small_ppo(data, learning_rate_schedule=learning_rate_schedule)
    trainer(root, *callbacks, **changes).fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    return model


def weights_hash(model: Algorithm) -> str:
    """A hash of every parameter and buffer."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()
