"""Environments of images in every layout that people have: the same numbers, shown in other shapes and dtypes."""

from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import FrameStackObservation, GrayscaleObservation, ResizeObservation

Layout = Literal["first", "last", "flat"]


class Grid(gym.Env):
    """A view of 7 x 7 cells with 3 category codes each, as MiniGrid shows it; truncated after 8 steps.

    A door stands on the left or on the right, and going there pays 1.

    Args:
        layout: `(3, 7, 7)`, `(7, 7, 3)` or one vector.
        high: the largest code that the space allows.
        dtype: of the codes; floats are codes divided by `high`.
        continuous: the action is a number, whose sign says where to go.
    """

    def __init__(self, layout: Layout = "last", high: int = 16, dtype: str = "uint8", continuous: bool = False):
        self.layout, self.high, self.dtype = layout, high, np.dtype(dtype)
        shape = {"first": (3, 7, 7), "last": (7, 7, 3), "flat": (147,)}[layout]
        bound = high if self.dtype.kind in "iu" else 1
        self.observation_space = Box(0, bound, shape, self.dtype.type)
        self.action_space = Box(-1, 1, (1,)) if continuous else Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps = 0
        return self.shown(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        went = int(np.ravel(action)[0] > 0)
        self.steps += 1
        reward = float(went == self.side)
        return self.shown(), reward, False, self.steps == 8, {}

    def shown(self) -> np.ndarray:
        self.side = int(self.np_random.integers(2))
        cells = self.np_random.integers(0, 4, (7, 7, 3))
        cells[:, 6 * self.side] = 10
        if self.dtype.kind == "f":
            cells = cells / self.high
        cells = np.moveaxis(cells, -1, 0) if self.layout == "first" else cells
        return cells.reshape(self.observation_space.shape).astype(self.dtype)


class Camera(gym.Env):
    """Frames of 40 x 48 pixels in which a bright bar moves; pays 1 for telling its direction; truncated after 12 steps.

    Args:
        frames: newest frames that are shown together, the last dimension of `(H, W, frames)`; 0 shows RGB.
        dtype: of the pixels; floats are from 0 to 1.
    """

    action_space = Discrete(2)

    def __init__(self, frames: int = 0, dtype: str = "uint8"):
        self.frames, self.dtype = frames, np.dtype(dtype)
        self.observation_space = Box(0, 255 if dtype == "uint8" else 1, (40, 48, frames or 3), self.dtype.type)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps, self.way = 0, int(self.np_random.integers(2))
        self.past = [self.picture()] * max(self.frames, 1)
        return self.shown(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        self.past = [*self.past[1:], self.picture()]
        return self.shown(), float(action == self.way), False, self.steps == 12, {}

    def picture(self) -> np.ndarray:
        pixels = np.full((40, 48, 3), 30, np.uint8)
        pixels[:, (20 + 3 * self.steps * (2 * self.way - 1)) % 48] = (200, 120, 40)
        return pixels

    def shown(self) -> np.ndarray:
        pixels = self.past[-1] if not self.frames else np.stack([each[..., 0] for each in self.past], -1)
        return pixels if self.dtype == np.uint8 else (pixels / 255).astype(self.dtype)


def wrapped(resize: int = 0, grey: bool = False, keep_dim: bool = False, stack: int = 0) -> gym.Env:
    """A camera behind Gymnasium's own wrappers."""
    env: gym.Env = Camera()
    if resize:
        env = ResizeObservation(env, (resize, resize))
    if grey:
        env = GrayscaleObservation(env, keep_dim=keep_dim)
    return FrameStackObservation(env, stack) if stack else env


gym.register("WrappedCamera-v0", entry_point="tests.support.image_envs:wrapped")
