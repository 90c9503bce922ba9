"""The package `minatar`, played with given draws, so that our games can be compared with it step for step."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor


class ReplayedDraws:
    """Stand-in for the package's `RandomState` that returns given numbers, in the order in which they are drawn."""

    def __init__(self) -> None:
        self.queue: list[float] = []

    def put(self, uniforms: Iterable[float]) -> None:
        """Replace the numbers to come."""
        self.queue = list(uniforms)

    def rand(self, size: int | None = None) -> Any:
        """Return the next uniform, or an array of the next ones."""
        return self.queue.pop(0) if size is None else np.array([self.queue.pop(0) for _ in range(size)])

    def randint(self, low: int, high: int | None = None, size: int | None = None) -> Any:
        """Return the next uniforms as integers in `range(low, high)`, or in `range(low)`, rounded as float32."""
        low, high = (0, low) if high is None else (low, high)
        drawn = [low + int(np.float32(self.rand()) * np.float32(high - low)) for _ in range(size or 1)]
        return np.array(drawn) if size else drawn[0]


def breakout_draws(game: Any, noise: list[float], starts: bool) -> list[float]:
    """Return what Breakout draws: the side of the ball at a start."""
    return noise if starts else []


DRAWS: dict[str, Callable[[Any, list[float], bool], list[float]]] = {"breakout": breakout_draws}
"""By game: the numbers that the package draws in the next step or start, in its order, from our uniforms."""


class PackageGame:
    """Game of the package `minatar` that takes actions as codes and uniforms as our games do.

    Args:
        name: name of the game in the package.   kwargs: arguments of the package's `Environment`.
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        import minatar

        self.whole, self.draws, self.name = minatar.Environment(name, **kwargs), ReplayedDraws(), name
        self.game = self.whole.env
        self.whole.random = self.game.random = self.draws

    def reset(self, noise: Tensor) -> None:
        """Start a game with uniforms `[noise_size]`; the last action becomes the no-op."""
        self.draws.put(DRAWS[self.name](self.game, noise[1:].tolist(), True))
        self.whole.reset()
        self.whole.last_action = 0
        assert not self.draws.queue, "the package drew fewer numbers"

    def step(self, action: int, noise: Tensor) -> tuple[float, bool]:
        """Step with an action's code and uniforms `[noise_size]`; return the reward and whether the game is over."""
        self.draws.put([float(noise[0]), *DRAWS[self.name](self.game, noise[1:].tolist(), False)])
        reward, over = self.whole.act(action)
        assert not self.draws.queue, "the package drew fewer numbers"
        return float(reward), bool(over)

    def observation(self) -> Tensor:
        """Return the planes, uint8 `[channels, 10, 10]`."""
        return torch.from_numpy(self.whole.state()).permute(2, 0, 1).to(torch.uint8)
