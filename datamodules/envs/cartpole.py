"""Variants of CartPole: continuous force with a freely swinging pole, and observations without velocities."""

import math
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from gymnasium.spaces import Box
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

Array = NDArray[np.float32]

RIGHT = 1
"""CartPole's action that applies the force with positive sign."""

MODES = ["rgb_array", "ansi"]
SCREEN_METRES = CartPoleEnv().x_threshold
"""Half the width of the picture."""

LARGEST = np.array([1.0, 1.0, np.finfo(np.float32).max], dtype=np.float32)
"""Bounds of the observations of `CartPoleForce`: the velocity has none but that of its dtype."""


class CartPoleVariant(gym.Env[Array, Any]):
    """Base class of environments with the physics, start and rendering of Gymnasium's CartPole.

    Args:
        render_mode: `rgb_array`, `ansi` or None.
        sutton_barto_reward: rewards of CartPole-v1's argument of this name.
    """

    metadata = CartPoleEnv.metadata | {"render_modes": MODES}

    def __init__(self, render_mode: str | None = None, sutton_barto_reward: bool = False) -> None:
        mode = "rgb_array" if render_mode == "rgb_array" else None
        self.cartpole = CartPoleEnv(sutton_barto_reward, mode)
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Reset to a nearly upright pole at rest, as CartPole does."""
        super().reset(seed=seed)
        self.cartpole.reset(seed=seed, options=options)
        return self.observe(np.asarray(self.cartpole.state)), {}

    def observe(self, state: NDArray[np.float64]) -> Array:
        """Return the observation of a state: position, velocity, angle and angular velocity, or rows of them."""
        raise NotImplementedError

    def render(self) -> Any:
        """Return CartPole's picture, with a cart that has left it at its middle, or a line of text."""
        state = np.asarray(self.cartpole.state)
        return describe(state) if self.render_mode == "ansi" else picture(self.cartpole, state)

    def close(self) -> None:
        """Close CartPole's window."""
        self.cartpole.close()


class CartPoleForce(CartPoleVariant):
    """Pole of Gymnasium's CartPole, with unchanged physics and a continuous force.

    Actions `[1]` are the force in units of CartPole's 10 N, clipped to [-1, 1] and held for a step of 0.02 s.
    Observations `[3]` are the cosine and sine of the pole's angle, which is 0 upright, and its velocity in rad/s. They
    are the complete state of the pole: its acceleration depends neither on the cart's position nor on its velocity.
    Episodes never terminate, and each step has reward 1, as in CartPole.

    Args:
        render_mode, sutton_barto_reward: as for `CartPoleVariant`.
    """

    observation_space = Box(-LARGEST, LARGEST, dtype=np.float32)
    action_space = Box(-1.0, 1.0, (1,), dtype=np.float32)

    def __init__(self, render_mode: str | None = None, sutton_barto_reward: bool = False) -> None:
        super().__init__(render_mode, sutton_barto_reward)
        self.cartpole.theta_threshold_radians = self.cartpole.x_threshold = math.inf
        self.largest = self.cartpole.force_mag

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Apply the force for one step."""
        self.cartpole.force_mag = self.largest * float(np.clip(action[0], -1.0, 1.0))
        _, reward, terminated, truncated, info = self.cartpole.step(RIGHT)
        return self.observe(np.asarray(self.cartpole.state)), float(reward), terminated, truncated, info

    def observe(self, state: NDArray[np.float64]) -> Array:
        """Return cosine and sine of the angle, and the angular velocity."""
        *_, angle, velocity = state
        return np.stack([np.cos(angle), np.sin(angle), velocity], -1).astype(np.float32)


VISIBLE = [0, 2]
"""Indices in CartPole's observation: the cart's position in metres and the pole's angle in radians."""


class CartPolePositions(CartPoleVariant):
    """CartPole-v1 with observations `[2]`, its dynamics, rewards and time limit of 500 steps unchanged.

    A policy without memory cannot observe in which direction the pole is falling. Source: Wierstra et al. 2007,
    doi:10.1007/978-3-540-74690-4_71, section 4, for pole balancing with incomplete state.

    Args:
        render_mode, sutton_barto_reward: as for `CartPoleVariant`.
    """

    _whole: Any = CartPoleEnv().observation_space
    observation_space = Box(_whole.low[VISIBLE], _whole.high[VISIBLE], dtype=np.float32)
    action_space = CartPoleEnv().action_space

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        """Step CartPole."""
        _, reward, terminated, truncated, info = self.cartpole.step(action)
        return self.observe(np.asarray(self.cartpole.state)), float(reward), terminated, truncated, info

    def observe(self, state: NDArray[np.float64]) -> Array:
        """Return position and angle."""
        return state[VISIBLE].T.astype(np.float32)


class CartPoleVariantVector(VectorEnv[Array, Any, NDArray[Any]]):
    """Vector environment of a variant: Gymnasium's vector of CartPoles, with the variant's spaces and observations.

    Args:
        variant: class of the variant.
        num_envs: number of environments.
        max_episode_steps: steps after which an episode is truncated.
        render_mode, sutton_barto_reward: as for the variant.
    """

    metadata = CartPoleVectorEnv.metadata | {"render_modes": MODES}

    def __init__(
        self,
        variant: type[CartPoleVariant],
        num_envs: int,
        max_episode_steps: int,
        render_mode: str | None = None,
        sutton_barto_reward: bool = False,
    ) -> None:
        mode = "rgb_array" if render_mode == "rgb_array" else None
        self.cartpoles = CartPoleVectorEnv(num_envs, max_episode_steps, mode, sutton_barto_reward)
        self.num_envs, self.render_mode, self.variant = num_envs, render_mode, variant()
        self.single_observation_space, self.single_action_space = variant.observation_space, variant.action_space
        self.observation_space = batch_space(variant.observation_space, num_envs)
        self.action_space = batch_space(variant.action_space, num_envs)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        """Reset every environment."""
        super().reset(seed=seed)
        _, info = self.cartpoles.reset(seed=seed, options=options)
        return self._observe(), info

    def step(self, actions: Any) -> tuple[Array, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Step every environment."""
        _, reward, terminated, truncated, info = self.cartpoles.step(actions)
        return self._observe(), reward, terminated, truncated, info

    def render(self) -> tuple[Any, ...] | None:
        """Return a picture or a line of text for each environment."""
        states = np.asarray(self.cartpoles.state).T
        if self.render_mode == "ansi":
            return tuple(map(describe, states))
        return tuple(picture(self.cartpoles, states.T)) if self.render_mode else None

    def close_extras(self, **kwargs: Any) -> None:
        """Close CartPole's window."""
        self.cartpoles.close_extras()

    def _observe(self) -> Array:
        return self.variant.observe(np.asarray(self.cartpoles.state))


class CartPolePositionsVector(CartPoleVariantVector):
    """Vector environment of `CartPolePositions`."""

    def __init__(self, num_envs: int = 1, max_episode_steps: int = 500, **kwargs: Any) -> None:
        super().__init__(CartPolePositions, num_envs, max_episode_steps, **kwargs)


class CartPoleForceVector(CartPoleVariantVector):
    """Vector environment of `CartPoleForce`."""

    def __init__(self, num_envs: int = 1, max_episode_steps: int = 200, **kwargs: Any) -> None:
        super().__init__(CartPoleForce, num_envs, max_episode_steps, **kwargs)
        self.cartpoles.theta_threshold_radians = self.cartpoles.x_threshold = math.inf
        self.largest = self.cartpoles.force_mag

    def step(self, actions: Any) -> tuple[Array, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Apply the forces for one step."""
        forces: Any = self.largest * np.clip(np.asarray(actions, dtype=np.float64)[:, 0], -1.0, 1.0)
        self.cartpoles.force_mag = forces
        return super().step(np.full(self.num_envs, RIGHT))


def describe(state: NDArray[np.float64]) -> str:
    """Return a state as a line of text."""
    return f"cart {state[0]:+.2f} m {state[1]:+.2f} m/s, pole {state[2]:+.3f} rad {state[3]:+.2f} rad/s"


def picture(cartpole: Any, state: NDArray[np.float64]) -> Any:
    """Return CartPole's rendering of a state `[4]`, or of states `[4, B]`, with carts that have left it in its middle.

    The width of the picture is that of CartPole, whose limits may have been lifted.
    """
    limit, held = cartpole.x_threshold, cartpole.state
    outside = np.abs(state[0]) > SCREEN_METRES
    cartpole.x_threshold = SCREEN_METRES
    cartpole.state = np.stack([np.where(outside, 0.0, state[0]), *state[1:]])
    try:
        return cartpole.render()
    finally:
        cartpole.x_threshold, cartpole.state = limit, held
