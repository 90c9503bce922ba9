"""A corridor of ten cells, and versions of it with one fault each."""

from typing import Any

import gymnasium
import numpy as np


class Corridor(gymnasium.Env):
    """Ten cells; the last one ends the episode, as do fifty steps."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    length = 50

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell, self.steps = int(self.np_random.integers(5)), 0
        return np.array([self.cell / 9], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.cell, self.steps = max(0, self.cell + (1 if action else -1)), self.steps + 1
        home = self.cell == 9
        return np.array([self.cell / 9], np.float32), home - 0.1, home, self.steps == self.length, {}


class NoOptions(Corridor):
    """Its reset takes no options."""

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:  # type: ignore[override]
        return super().reset(seed=seed)


class NaNReward(Corridor):
    """Its rewards are NaN from the twentieth step on."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, *rest = super().step(action)
        return obs, reward if self.steps < 20 else float("nan"), *rest  # type: ignore[return-value]


class Unseeded(Corridor):
    """Equal seeds begin differently."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**kwargs)
        return np.random.rand(1).astype(np.float32), {}


class Endless(Corridor):
    """Pays nothing and never ends."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, *_ = super().step(action)
        return obs, 0.0, False, False, {}


class RaisesLater(Corridor):
    """Raises in its thirtieth step."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.steps == 29:
            raise KeyError("door")
        return super().step(action)


class Unrenderable(Corridor):
    """Has images, which it cannot draw; opening a window would end the program."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 1}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None):
        self.render_mode = render_mode

    def render(self) -> Any:
        if self.render_mode == "human":
            raise SystemExit("a window was opened")
        raise OSError("no EGL")
