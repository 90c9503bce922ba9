"""CartPole that shows positions but no velocities: whoever balances it must remember."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray

VISIBLE = [0, 2]
"""Of CartPole's observation: the cart's position in metres and the pole's angle in radians."""


class CartPolePositions(gym.ObservationWrapper):
    """CartPole-v1 with observations `[2]`, its dynamics, rewards and time limit of 500 steps unchanged.

    Without memory a policy cannot tell which way the pole is falling. Source: Wierstra et al. 2007,
    doi:10.1007/978-3-540-74690-4_71, section 4, for pole balancing with incomplete state.

    Args:
        kwargs: those of CartPole-v1, `render_mode` among them.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(gym.make("CartPole-v1", disable_env_checker=True, **kwargs))
        whole = self.env.observation_space
        assert isinstance(whole, Box)
        self.observation_space = Box(whole.low[VISIBLE], whole.high[VISIBLE], dtype=np.float32)

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """The visible part."""
        return observation[VISIBLE]
