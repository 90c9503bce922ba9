"""Flatten Dict and Tuple actions into one array of columns. Worker processes without torch import this module.

Parts are Discrete, MultiDiscrete, MultiBinary and Box spaces of floats. Actions of Box parts only become one Box, those
of choices only a MultiDiscrete, and mixed ones a `HybridSpace`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from datamodules.core.errors import ConfigurationError


class HybridSpace(Box[np.floating[Any] | np.integer[Any]]):
    """Box of mixed actions `[D + C]`: D columns of choices from 0, then C continuous ones.

    Args:
        sizes: number of choices of each of the D columns.
        low, high: bounds of the C continuous columns.
    """

    def __init__(self, sizes: Sequence[int], low: Sequence[float], high: Sequence[float]):
        self.sizes = list(sizes)
        bottom, top = [0.0] * len(sizes) + [*low], [size - 1.0 for size in sizes] + [*high]
        super().__init__(np.asarray(bottom, np.float32), np.asarray(top, np.float32), dtype=np.float32)


class ActionPart(NamedTuple):
    """A part of an action: its space and its columns of the flat action."""

    space: gym.Space
    columns: slice


class JoinActions(gym.Wrapper):
    """Wrapper that takes the parts of a Dict or Tuple action as one array (see the module)."""

    def __init__(self, env: gym.Env, name: str):
        super().__init__(env)
        leaves = _leaves(env.action_space, (), name)
        choices = {path: _sizes(space) for path, space in leaves.items() if not isinstance(space, Box)}
        boxes = {path: space for path, space in leaves.items() if isinstance(space, Box)}
        self.parts: dict[tuple[Any, ...], ActionPart] = {}
        start = 0
        for path in (*choices, *boxes):
            width = len(choices[path]) if path in choices else int(np.prod(boxes[path].shape))
            self.parts[path] = ActionPart(leaves[path], slice(start, start + width))
            start += width
        sizes = [size for each in choices.values() for size in each]
        low, high = ([float(x) for box in boxes.values() for x in getattr(box, end).ravel()] for end in ("low", "high"))
        self.action_space: gym.Space = HybridSpace(sizes, low, high)
        if not sizes:
            self.action_space = Box(np.asarray(low, np.float32), np.asarray(high, np.float32))
        elif not boxes:
            self.action_space = MultiDiscrete(sizes)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        return self.env.step(self._nested(self.env.action_space, (), np.asarray(action)))

    def _nested(self, space: gym.Space, path: tuple[Any, ...], action: Any) -> Any:
        if isinstance(space, gym.spaces.Dict):
            return {key: self._nested(child, (*path, key), action) for key, child in space.spaces.items()}
        if isinstance(space, gym.spaces.Tuple):
            return tuple(self._nested(child, (*path, index), action) for index, child in enumerate(space.spaces))
        columns = action[self.parts[path].columns]
        if isinstance(space, Box):
            return columns.reshape(space.shape).astype(space.dtype)
        chosen = columns.reshape(space.shape or ()).astype(np.int64) + np.asarray(getattr(space, "start", 0))
        return chosen[()] if isinstance(space, Discrete) else chosen.astype(space.dtype)


def join_actions(env: gym.Env, name: str) -> gym.Env:
    """Wrap an environment with Dict or Tuple actions in `JoinActions`.

    Raises: ConfigurationError for parts of other spaces, and for a Box of integers or without finite bounds.
    """
    composite = isinstance(getattr(env, "action_space", None), gym.spaces.Dict | gym.spaces.Tuple)
    return JoinActions(env, name) if composite else env


def _leaves(space: gym.Space, path: tuple[Any, ...], name: str) -> dict[tuple[Any, ...], gym.Space]:
    if isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        children = space.spaces.items() if isinstance(space, gym.spaces.Dict) else enumerate(space.spaces)
        found: dict[tuple[Any, ...], gym.Space] = {}
        for key, child in children:
            found |= _leaves(child, (*path, key), name)
        return found
    floats = isinstance(space, Box) and np.issubdtype(space.dtype, np.floating) and space.is_bounded()
    if floats or isinstance(space, Discrete | MultiDiscrete | MultiBinary):
        return {path: space}
    raise ConfigurationError(
        f"{name} takes actions with the part {'.'.join(map(str, path))}, {space}, but the parts of a Dict or Tuple must"
        " be Discrete, MultiDiscrete, MultiBinary, or Box of floats with finite bounds: write a"
        " gymnasium.ActionWrapper that offers these."
    )


def _sizes(space: gym.Space) -> list[int]:
    """Return the number of choices of each element, flat."""
    if isinstance(space, Discrete):
        return [int(space.n)]
    if isinstance(space, MultiDiscrete):
        return [int(size) for size in space.nvec.ravel()]
    return [2] * int(np.prod(space.shape or ()))
