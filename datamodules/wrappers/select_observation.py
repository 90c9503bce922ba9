"""SelectObservation: show a part of an observation's numbers, which hides the others from the agent."""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from datamodules.core.errors import ConfigurationError


class SelectObservation(gym.ObservationWrapper):
    """Keep the numbers at some indices of an observation `[N]`, in the order given: positions without velocities.

    Args:
        env: environment with a Box observation of one dimension.
        indices: of the numbers to keep, from 0.

    Raises: ConfigurationError for other observations, and for indices that are missing, repeated or out of range.
    """

    def __init__(self, env: gym.Env, indices: Sequence[int]):
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 1:
            raise ConfigurationError(
                f"SelectObservation needs a Box observation of one dimension, but {env.unwrapped} has {space}: wrap it"
                " in FlattenObservation first."
            )
        size = space.shape[0]
        if not indices or len({*indices}) < len(indices) or not all(0 <= index < size for index in indices):
            raise ConfigurationError(
                f"SelectObservation got indices {list(indices)}: give at least one, and different ones from 0 to"
                f" {size - 1}."
            )
        self.indices = np.array(indices)
        low, high = space.low[self.indices], space.high[self.indices]
        self.observation_space = gym.spaces.Box(low, high, dtype=space.dtype.type)

    def observation(self, observation: Any) -> Any:
        """Return the numbers that are kept."""
        return observation[self.indices]
