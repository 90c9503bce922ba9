"""ClassicControlEnv: base class of the classic control tasks, with the time limit, initial states and rendering."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec, State
from datamodules.envs.classic_control.rendering import Segment, rgb_array, text

Motion = tuple[Tensor, ...]
"""Variables of the motion, `[B]` each, in the order of `ClassicControlEnv.variables`."""


class ClassicControlEnv(ABC):
    """Classic control task as a `TorchFuncEnv`; a subclass defines its equations of motion.

    The state is float32, where Gymnasium's is float64. Each variable of the motion is a leaf `[B]` of its own, so that
    compiled code is vectorised; `steps` counts the steps.

    Args:
        time_limit: steps after which an episode is truncated; None never truncates.

    Attributes:
        variables: names of the variables of the motion.
        start_low, start_high: bounds of their uniformly drawn initial values.
        obs_low, obs_high: bounds of the observation.
        actions: number of discrete actions; 0 for one continuous action in +- `largest_action`.

    Raises: ConfigurationError if `time_limit` is below 1.
    """

    variables: ClassVar[tuple[str, ...]]
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

    @abstractmethod
    def move(self, motion: Motion, action: Tensor) -> tuple[Motion, Tensor, Tensor]:
        """Return the variables after a step, its reward float32 `[B]` and whether it terminated, bool `[B]`."""

    @abstractmethod
    def scene(self, motion: list[float]) -> list[Segment]:
        """Return the segments that picture the variables of one row."""

    def initial(self, noise: Tensor) -> State:
        """Return initial states from uniforms `[B, len(variables)]`."""
        bounds = zip(self.variables, noise.unbind(1), self.start_low, self.start_high, strict=True)
        motion = {name: uniform * (high - low) + low for name, uniform, low, high in bounds}
        return motion | {"steps": torch.zeros_like(noise[:, 0], dtype=torch.int64)}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Step with actions `[B]`, or `[B, 1]` if continuous; the motion has no noise."""
        motion, reward, terminated = self.move(self.motion(state), action)
        steps, limit = state["steps"] + 1, self.min_truncation_step
        truncated = torch.zeros_like(terminated) if limit is None else steps >= limit
        return dict(zip(self.variables, motion, strict=True)) | {"steps": steps}, reward, terminated, truncated

    def motion(self, state: State) -> Motion:
        """Return the variables of a state, `[B]` each."""
        return tuple(state[name] for name in self.variables)

    def observation(self, state: State) -> Tensor:
        """Return the observation, float32 `[B, *obs_shape]`; by default the variables."""
        return torch.stack(self.motion(state), 1)

    def info(self, state: State) -> dict[str, Tensor]:
        """Return an empty info."""
        return {}

    def render(self, state: State, row: int, mode: str) -> Tensor | str:
        """Render one row: `rgb_array`, uint8 `[200, 300, 3]`, or `ansi`, its numbers and 16 lines of 48 letters."""
        motion = [float(variable[row]) for variable in self.motion(state)]
        segments = self.scene(motion)
        if mode == "ansi":
            return (
                "  ".join(f"{name} {number:.3f}" for name, number in zip(self.variables, motion, strict=True))
                + "\n"
                + text(segments)
            )
        return rgb_array(segments)
