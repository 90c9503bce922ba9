"""Variants of CartPole: continuous force with a freely swinging pole, and observations without velocities."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from gymnasium.spaces import Box
from numpy.typing import NDArray

RIGHT = 1
"""CartPole's action that applies the force with positive sign."""


class CartPoleForce(gym.Env[NDArray[np.float32], NDArray[np.float32]]):
    """Pole of Gymnasium's CartPole, with unchanged physics and a continuous force.

    Actions `[1]` are the force in units of CartPole's 10 N, clipped to [-1, 1] and held for a step of 0.02 s.
    Observations `[3]` are the cosine and sine of the pole's angle, which is 0 upright, and its velocity in rad/s. They
    are the complete state of the pole: its acceleration depends neither on the cart's position nor on its velocity.
    Episodes never terminate, and each step has reward 1, as in CartPole.

    Args:
        kwargs: arguments of CartPole-v1, including `render_mode`.
    """

    metadata = CartPoleEnv.metadata

    def __init__(self, **kwargs: Any) -> None:
        self.cartpole = CartPoleEnv(**kwargs)
        self.cartpole.theta_threshold_radians = self.cartpole.x_threshold = math.inf
        self.largest, self.render_mode = self.cartpole.force_mag, self.cartpole.render_mode
        self.action_space = Box(-1.0, 1.0, (1,), dtype=np.float32)
        most = np.array([1.0, 1.0, np.inf], dtype=np.float32)
        self.observation_space = Box(-most, most, dtype=np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Reset to a nearly upright pole at rest, as CartPole does."""
        super().reset(seed=seed)
        self.cartpole.reset(seed=seed, options=options)
        return self._shown(), {}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Apply the force for one step."""
        self.cartpole.force_mag = self.largest * float(np.clip(action[0], -1.0, 1.0))
        _, reward, terminated, truncated, info = self.cartpole.step(RIGHT)
        return self._shown(), float(reward), terminated, truncated, info

    def render(self) -> Any:
        """Return CartPole's rendering."""
        return self.cartpole.render()

    def close(self) -> None:
        """Close CartPole's window."""
        self.cartpole.close()

    def _shown(self) -> NDArray[np.float32]:
        assert self.cartpole.state is not None
        _, _, angle, velocity = self.cartpole.state
        return np.array([math.cos(angle), math.sin(angle), velocity], dtype=np.float32)


VISIBLE = [0, 2]
"""Indices in CartPole's observation: the cart's position in metres and the pole's angle in radians."""


class CartPolePositions(gym.ObservationWrapper):
    """CartPole-v1 with observations `[2]`, its dynamics, rewards and time limit of 500 steps unchanged.

    A policy without memory cannot observe in which direction the pole is falling. Source: Wierstra et al. 2007,
    doi:10.1007/978-3-540-74690-4_71, section 4, for pole balancing with incomplete state.

    Args:
        kwargs: arguments of CartPole-v1, including `render_mode`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(gym.make("CartPole-v1", disable_env_checker=True, **kwargs))
        whole = self.env.observation_space
        assert isinstance(whole, Box)
        self.observation_space = Box(whole.low[VISIBLE], whole.high[VISIBLE], dtype=np.float32)

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return position and angle."""
        return observation[VISIBLE]
