"""An environment of images that takes its time, importable without torch."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete


class Images(gym.Env):
    """Shows noise of 84 x 84 x 4 bytes, which takes about 0.2 ms to make; pays 1 a step; truncated after `length`."""

    observation_space = Box(0, 255, (84, 84, 4), np.uint8)
    action_space = Discrete(4)

    def __init__(self, length: int = 200):
        self.length, self.count = length, 0

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.count = 0
        return self.drawn(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.count += 1
        return self.drawn(), 1.0, False, self.count == self.length, {}

    def drawn(self) -> np.ndarray:
        noise = self.np_random.standard_normal(self.observation_space.shape, dtype=np.float32)
        return (noise * 32 + 128).clip(0, 255).astype(np.uint8)
