"""EpisodicLife: end an episode with each life, and start the next one without restarting the game."""

from typing import Any

import gymnasium as gym
from gymnasium.wrappers import FrameStackObservation

from datamodules.core.errors import ConfigurationError

NOOP = 0
"""The action that starts the next life, as in Atari's games."""


class EpisodicLife(gym.Wrapper):
    """End an episode with the loss of a life; a reset restarts the game only after its end, else it takes a no-op step.

    For training only (`data.train_wrappers`): evaluations play whole games. It acts inside of frame stacks, so that the
    stack of a new life holds no frames of the life before.

    Args:
        env: environment whose `info` has `lives` after every reset and step, as Atari's games do.

    Raises: ConfigurationError, from a reset or step, if `info` has no `lives`.

    Source: Mnih et al. 2015, doi:10.1038/nature14236, Methods, "Training details".
    """

    def __init__(self, env: gym.Env):
        stack = _outermost_stack(env)
        if stack is not None:
            stack.env = _LifeEnd(stack.env)
        super().__init__(_LifeEnd(env) if stack is None else env)


def _outermost_stack(env: gym.Env) -> FrameStackObservation | None:
    """Return the outermost frame stack among the wrappers of an environment."""
    while isinstance(env, gym.Wrapper):
        if isinstance(env, FrameStackObservation):
            return env
        env = env.env
    return None


class _LifeEnd(gym.Wrapper):
    """Wrapper that terminates with each life lost."""

    def __init__(self, env: gym.Env):
        super().__init__(env)
        self._lives, self._game_over = 0, True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        obs: Any = None
        info: dict[str, Any] = {}
        if not self._game_over and seed is None and not options:
            obs, _, terminated, truncated, info = self.env.step(NOOP)
            self._game_over = bool(terminated or truncated)
        if self._game_over or seed is not None or options:
            obs, info = self.env.reset(seed=seed, options=options)
            self._game_over = False
        self._lives = self._lives_in(info)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._game_over = bool(terminated or truncated)
        before, self._lives = self._lives, self._lives_in(info)
        return obs, reward, bool(terminated or self._lives < before), truncated, info

    def _lives_in(self, info: dict[str, Any]) -> int:
        if "lives" not in info:
            raise ConfigurationError(
                f"EpisodicLife needs `lives` in the info of every reset and step, which {self.env.unwrapped} does not"
                " give: remove the wrapper."
            )
        return int(info["lives"])
