"""ClassicControlEnv: base class of the classic control tasks, with the time limit, initial states and rendering."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec, State
from datamodules.env_interface.device_constants import DeviceConstants
from datamodules.envs.classic_control.rendering import Segment, rgb_array, text


class ClassicControlEnv(ABC):
    """Classic control task as a `TorchFuncEnv`; a subclass defines its equations of motion.

    The state is float32, where Gymnasium's is float64; `physics` holds it as `[B, D]`, `steps` counts the steps.

    Args:
        time_limit: steps after which an episode is truncated; None never truncates.

    Attributes:
        start_low, start_high: bounds of the uniformly drawn initial state, `D` each.
        obs_low, obs_high: bounds of the observation.
        actions: number of discrete actions; 0 for one continuous action in +- `largest_action`.

    Raises: ConfigurationError if `time_limit` is below 1.
    """

    start_low: ClassVar[Sequence[float]]
    start_high: ClassVar[Sequence[float]]
    obs_low: ClassVar[Sequence[float]]
    obs_high: ClassVar[Sequence[float]]
    actions: ClassVar[int]
    largest_action: ClassVar[float] = 1.0
    episode_stat_keys = ()

    def __init__(self, time_limit: int | None) -> None:
        if time_limit is not None and time_limit < 1:
            raise ConfigurationError(
                f"{type(self).__name__} has time_limit {time_limit}; choose at least 1 step, or null for none."
            )
        self.min_truncation_step, self.noise_size = time_limit, len(self.start_low)
        self.obs_bounds = tuple(np.array(bound, np.float32) for bound in (self.obs_low, self.obs_high))
        bounds = [] if self.actions else [self.largest_action]
        self.spaces = SpaceSpec(
            obs_shape=(len(self.obs_low),),
            obs_dtype="float32",
            action_type="discrete" if self.actions else "continuous",
            action_sizes=[self.actions] if self.actions else [],
            action_low=[-bound for bound in bounds],
            action_high=bounds,
            action_start=[0] if self.actions else [],
            num_agents=1,
        )
        self._start = DeviceConstants(torch.tensor(self.start_low), torch.tensor(self.start_high))

    @abstractmethod
    def move(self, physics: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the physics `[B, D]` after a step, its reward float32 `[B]` and whether it terminated, bool `[B]`."""

    @abstractmethod
    def scene(self, physics: list[float]) -> list[Segment]:
        """Return the segments that picture a state of one row."""

    def initial(self, noise: Tensor) -> State:
        """Return initial states from uniforms `[B, D]`."""
        low, high = self._start.on(noise.device)
        return {
            "physics": torch.lerp(low, high, noise),
            "steps": torch.zeros_like(noise[:, 0], dtype=torch.int64),
        }

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Step with actions `[B]`, or `[B, 1]` if continuous; the motion has no noise."""
        physics, reward, terminated = self.move(state["physics"], action)
        steps, limit = state["steps"] + 1, self.min_truncation_step
        truncated = torch.zeros_like(terminated) if limit is None else steps >= limit
        return {"physics": physics, "steps": steps}, reward, terminated, truncated

    def observation(self, state: State) -> Tensor:
        """Return the observation, float32 `[B, *obs_shape]`."""
        return state["physics"]

    def info(self, state: State) -> dict[str, Tensor]:
        """Return an empty info."""
        return {}

    def render(self, state: State, row: int, mode: str) -> Tensor | str:
        """Render one row: `rgb_array`, uint8 `[200, 300, 3]`, or `ansi`, its numbers and 16 lines of 48 letters."""
        physics = state["physics"][row].tolist()
        segments = self.scene(physics)
        if mode == "ansi":
            return "  ".join(f"{number:.3f}" for number in physics) + "\n" + text(segments)
        return rgb_array(segments)
