"""Environment with lives: each episode is a game of several lives, and every second step loses one."""

from typing import Any

import gymnasium as gym
import numpy as np


class Lives(gym.Env):
    """Game of `lives` lives; observation `[1]` counts the steps since the game's start, action 0 does nothing.

    Every step has reward 5 and every second step loses a life; the game ends with the last one.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 1}  # noqa: RUF012
    observation_space = gym.spaces.Box(0, 255, (1,), np.uint8)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, lives: int = 3, render_mode: str | None = None):
        self.all_lives, self.render_mode = lives, render_mode
        self.steps, self.lives, self.games = 0, lives, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.lives, self.games = 0, self.all_lives, self.games + 1
        return self._obs(), {"lives": self.lives}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.lives -= self.steps % 2 == 0
        return self._obs(), 5.0, self.lives == 0, False, {"lives": self.lives}

    def render(self) -> Any:
        return np.full((8, 8, 3), self.steps, np.uint8)

    def _obs(self) -> Any:
        return np.array([self.steps], np.uint8)
