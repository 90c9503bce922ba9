"""Small runs of soft actor-critic for tests."""

from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from datamodules.core.types import SpaceSpec, State
from datamodules.replay import ReplayDataModule
from modules.networks import MLP
from modules.networks.heads.twin_critic import TwinMLP
from modules.sac.sac import SAC
from tests.support.small_runs import trainer

SIZES: dict[str, Any] = {"num_envs": 4, "train_freq": 4, "batch_size": 16, "replay_ratio": 2, "capacity": 200}
RUN: dict[str, Any] = {"total_env_steps": 320, "learning_starts": 32, "eval_episodes": 2, "n_step": 2}


class Drift:
    """A point on a line, on the device, pushed by the action and by chance; to be kept at 0, for ten steps."""

    spaces = SpaceSpec(
        obs_shape=(1,),
        obs_dtype="float32",
        action_type="continuous",
        action_sizes=[],
        action_low=[-0.5],
        action_high=[0.5],
        action_start=[],
        num_agents=1,
    )
    noise_size, episode_stat_keys, min_truncation_step = 1, (), 10

    def initial(self, noise: Tensor) -> State:
        return {"x": noise[:, 0] * 2 - 1, "t": torch.zeros(len(noise), dtype=torch.int64, device=noise.device)}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        x, t = state["x"] + action[:, 0].clamp(-0.5, 0.5) + 0.1 * noise[:, 0] - 0.05, state["t"] + 1
        return {"x": x, "t": t}, 1 - x.abs(), x.abs() > 2, t >= 10

    def observation(self, state: State) -> Tensor:
        return state["x"].unsqueeze(-1)

    def info(self, state: State) -> dict[str, Tensor]:
        return {}


def box_data(**changes: Any) -> ReplayDataModule:
    """Four points, two updates of 16 every four vector steps; twenty iterations, the first of which waits."""
    return ReplayDataModule(**{"env": "tests.oracles.sac.Drift", **SIZES, **RUN, **changes})


def choice_data(**changes: Any) -> ReplayDataModule:
    """The same with boards of Snake, which mask the way back, and priorities."""
    kwargs = {"dim": 6, "distance_to_border": 2, "observation": "features"}
    return ReplayDataModule(
        **{"env": "Snake-v0", "env_kwargs": kwargs, "priority_alpha": 0.6, **SIZES, **RUN, **changes}
    )


def small_sac(data: ReplayDataModule, kind: type[SAC] = SAC, **changes: Any) -> SAC:
    """Narrow networks."""
    networks: dict[str, Any] = {"network": lambda shape: MLP(shape, (32,), "relu")}
    networks["critic"] = lambda *shape: TwinMLP(*shape, hidden=(32,))
    return kind(data.spaces, **{**networks, "learning_rate": 1e-3, "learning_rate_schedule": "linear", **changes})


def fitted_sac(
    root: Path,
    data: ReplayDataModule,
    *callbacks: Callback,
    ckpt_path: Path | None = None,
    limit_train_batches: int | None = None,
    **settings: Any,
) -> SAC:
    """A small SAC trained on `data` from seed 1."""
    lightning.seed_everything(1, verbose=False)
    model = small_sac(data, **settings)
    run = trainer(root, *callbacks, limit_train_batches=limit_train_batches)
    run.fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    return model
