"""The smallest algorithms and data that the command line can run."""

from collections.abc import Callable
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from lightning.pytorch import LightningDataModule
from torch import Tensor, nn
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader

from datamodules.base import EnvDataModule
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec
from modules.base.algorithm import Algorithm


class Torso(nn.Module):
    def __init__(self, obs_shape: tuple[int, ...], hidden: tuple[int, ...] = (8, 8)):
        super().__init__()
        self.layer = nn.Linear(obs_shape[0], hidden[0])


class Walker(Algorithm):
    def __init__(
        self,
        spaces: SpaceSpec,
        learning_rate: float = 1e-3,
        update_epochs: int = 1,
        value_clip_range: float | None = None,
        network: Callable[[tuple[int, ...]], nn.Module] = Torso,
    ):
        super().__init__(spaces)
        if update_epochs == 13:
            raise RuntimeError("a real bug")
        if update_epochs < 1:
            raise ValueError(f"model.update_epochs is {update_epochs}; it must be at least 1.")
        self.save_hyperparameters()
        self.learning_rate, self.update_epochs = learning_rate, update_epochs
        self.network = network(spaces["obs_shape"])

    def configure_optimizers(self) -> Any:
        return SGD(self.parameters(), lr=self.learning_rate)

    def on_fit_start(self) -> None:
        if self.update_epochs == 14:
            raise RuntimeError("a bug on the way")

    def optimizers_(self) -> list[Optimizer]:
        return []

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.optimizers().step()
        self.env_steps += 1
        self.log("eval/return_mean", float(batch_idx))

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        pass

    def on_validation_epoch_end(self) -> None:
        pass

    test_step = validation_step
    on_test_epoch_end = on_validation_epoch_end


class Runner(Walker):
    pass


class Field(EnvDataModule):
    total_env_steps, steps_per_iteration, _eval_envs = 3, 1, None

    def __init__(self, env: str, num_envs: int = 4, backend: Literal["auto", "sync"] = "auto"):
        LightningDataModule.__init__(self)
        if num_envs < 1:
            try:
                raise LookupError("inside")
            except LookupError as error:
                raise ConfigurationError(f"data.num_envs is {num_envs}; it must be at least 1.") from error
        self.spaces = SpaceSpec(
            obs_shape=(9,) if env == "Wide-v0" else (4,),
            obs_dtype="float32",
            action_type="discrete",
            action_sizes=[2],
            action_low=[],
            action_high=[],
            action_start=[0],
            num_agents=1,
        )

    @property
    def iterations(self) -> int:
        return 3

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass

    def teardown(self, stage: str) -> None:
        pass

    def train_dataloader(self) -> Any:
        return DataLoader(range(3))

    val_dataloader = test_dataloader = predict_dataloader = train_dataloader


class Untyped:
    """An option policy whose methods say nothing of their types."""

    uses_actor, min_duration, max_duration = False, 1, 0

    def initiation(self, obs):
        return obs[:, 0] > 0

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        return actor_action

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        return obs[:, 0]


class Switches(gym.Env):
    """Takes two switches at once."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.MultiBinary(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        return np.zeros(2, np.float32), 0.0, False, False, {}
