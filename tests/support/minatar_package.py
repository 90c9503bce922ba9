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


def asterix_draws(game: Any, noise: list[float], starts: bool) -> list[float]:
    """Return side and kind of an object, and its row if one is empty."""
    if starts or game.spawn_timer:
        return []
    return noise if None in game.entities else noise[:2]


def breakout_draws(game: Any, noise: list[float], starts: bool) -> list[float]:
    """Return the side of the ball at a start."""
    return noise if starts else []


def freeway_draws(game: Any, noise: list[float], starts: bool) -> list[float]:
    """Return eight speeds, then eight directions; a step uses them only if it ends a crossing."""
    numbers = [int(np.float32(uniform) * np.float32(10)) for uniform in noise]
    return [(number % 5 + 0.5) / 5 for number in numbers] + [0.25 if number < 5 else 0.75 for number in numbers]


def seaquest_draws(game: Any, noise: list[float], starts: bool) -> list[float]:
    """Return direction, kind and row of an enemy, and direction and row of a diver, where one is due."""
    enemy, diver = (game.e_spawn_timer == 0, game.d_spawn_timer == 0) if not starts else (False, False)
    return noise[:3] * enemy + noise[3:] * diver


def space_invaders_draws(game: Any, noise: list[float], starts: bool) -> list[float]:
    """Return nothing: the game draws no numbers."""
    return []


DRAWS: dict[str, Callable[[Any, list[float], bool], list[float]]] = {
    "asterix": asterix_draws,
    "breakout": breakout_draws,
    "freeway": freeway_draws,
    "seaquest": seaquest_draws,
    "space_invaders": space_invaders_draws,
}
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
        drawn = DRAWS[self.name](self.game, noise[1:].tolist(), False)
        self.draws.put([float(noise[0]), *drawn])
        reward, over = self.whole.act(action)
        assert len(self.draws.queue) in (0, len(drawn) if self.name == "freeway" else 0), "it drew fewer numbers"
        return float(reward), bool(over)

    def go_on(self) -> None:
        """Play on where the game is over, as if it were not."""
        self.game.terminal = False

    def observation(self) -> Tensor:
        """Return the planes, uint8 `[channels, 10, 10]`."""
        return torch.from_numpy(self.whole.state()).permute(2, 0, 1).to(torch.uint8)
