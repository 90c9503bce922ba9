"""Name the parts of Dict and Tuple observations, nested ones joined by dots.

Parts are Box, Discrete, MultiDiscrete and MultiBinary spaces; others, such as texts, are dropped. A part named
`action_mask` is moved to the infos. An observation with one part left is that part. Worker processes without torch
import this module.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from datamodules.core.errors import ConfigurationError

ACTION_MASK = "action_mask"

Path = tuple[str | int, ...]
"""Keys and indices that lead to a part."""


class SplitSpace(NamedTuple):
    """Parts of an observation space.

    space: a Dict of the parts, or the only one.   paths: of the parts, by name.   mask: path of the `action_mask`.
    dropped: kinds of the dropped parts, by name.
    """

    space: gym.Space
    paths: dict[str, Path]
    mask: Path | None
    dropped: dict[str, str]

    @property
    def is_nested(self) -> bool:
        """Return whether observations must be changed."""
        flat = all(path == (name,) for name, path in self.paths.items())
        return bool(self.paths) and not (flat and self.mask is None and not self.dropped and len(self.paths) > 1)


def split_space(space: gym.Space, name: str) -> SplitSpace:
    """Return the parts of an observation space; another space than Dict and Tuple has none.

    Args:
        name: name of the environment in messages.

    Raises: ConfigurationError if no part is left, or two have one name.
    """
    if not isinstance(space, gym.spaces.Dict | gym.spaces.Tuple):
        return SplitSpace(space, {}, None, {})
    leaves = [*_leaves(space, ())]
    names = [".".join(map(str, path)) for path, _ in leaves]
    if twice := {each for each in names if names.count(each) > 1}:
        raise ConfigurationError(f"{name} has two observations named {min(twice)}: rename a key of its space.")
    found = dict(zip(names, leaves, strict=True))
    mask = found.pop(ACTION_MASK, None)
    kept = {
        key: leaf for key, leaf in found.items() if isinstance(leaf[1], Box | Discrete | MultiDiscrete | MultiBinary)
    }
    dropped = {key: type(leaf[1]).__name__ for key, leaf in found.items() if key not in kept}
    if not kept:
        raise ConfigurationError(
            f"{name} has observations without a Box, Discrete, MultiDiscrete or MultiBinary part"
            f" ({', '.join(f'{key}: {kind}' for key, kind in dropped.items()) or 'no part at all'}): wrap it in a"
            " gymnasium.ObservationWrapper that gives one."
        )
    spaces = {key: leaf[1] for key, leaf in kept.items()}
    only = next(iter(spaces.values())) if len(spaces) == 1 else gym.spaces.Dict(spaces)
    return SplitSpace(only, {key: leaf[0] for key, leaf in kept.items()}, mask and mask[0], dropped)


def _leaves(space: gym.Space, path: Path) -> list[tuple[Path, gym.Space]]:
    if isinstance(space, gym.spaces.Dict):
        return [leaf for key, child in space.spaces.items() for leaf in _leaves(child, (*path, key))]
    if isinstance(space, gym.spaces.Tuple):
        return [leaf for index, child in enumerate(space.spaces) for leaf in _leaves(child, (*path, index))]
    return [(path, space)]


class SplitObservation(gym.Wrapper):
    """Wrapper that gives the parts of an environment's observations by name (see the module)."""

    def __init__(self, env: gym.Env, split: SplitSpace):
        super().__init__(env)
        self.split, self.observation_space = split, split.space

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Reset the environment."""
        obs, info = self.env.reset(**kwargs)
        return select_parts(self.split, obs), with_mask(self.split, obs, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return select_parts(self.split, obs), reward, terminated, truncated, with_mask(self.split, obs, info)


class SplitVectorObservation(gym.vector.VectorWrapper):
    """Wrapper that gives the parts of the observations of a vector environment by name (see the module)."""

    def __init__(self, env: gym.vector.VectorEnv, split: SplitSpace):
        super().__init__(env)
        self.split, self.single_observation_space = split, split.space
        self.observation_space = gym.vector.utils.batch_space(split.space, self.num_envs)

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Reset the environments."""
        obs, infos = self.env.reset(**kwargs)
        return select_parts(self.split, obs), with_mask(self.split, obs, infos)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments."""
        obs, reward, terminated, truncated, infos = self.env.step(actions)
        if "final_obs" in infos:
            last = np.full(len(infos["final_obs"]), None, dtype=object)
            for row, each in enumerate(infos["final_obs"]):
                last[row] = None if each is None else select_parts(self.split, each)
            infos = {**infos, "final_obs": last}
        return select_parts(self.split, obs), reward, terminated, truncated, with_mask(self.split, obs, infos)


def split_observation(env: gym.Env, name: str) -> gym.Env:
    """Wrap an environment whose observations are nested, hold an `action_mask`, or have parts to drop."""
    space = getattr(env, "observation_space", None)
    split = split_space(space, name) if isinstance(space, gym.Space) else None
    return SplitObservation(env, split) if split is not None and split.is_nested else env


def split_vector_observation(envs: gym.vector.VectorEnv, name: str) -> gym.vector.VectorEnv:
    """Wrap a vector environment as `split_observation` does."""
    split = split_space(envs.single_observation_space, name)
    return SplitVectorObservation(envs, split) if split.is_nested else envs


def select_parts(split: SplitSpace, obs: Any) -> Any:
    """Return the parts of an observation, or of a batch of them, by name; or the only one."""
    parts = {name: _at(obs, path, name) for name, path in split.paths.items()}
    return parts if len(parts) > 1 else next(iter(parts.values()))


def with_mask(split: SplitSpace, obs: Any, info: dict[str, Any]) -> dict[str, Any]:
    """Return an info, to which the observation's `action_mask` is added, if it has one."""
    if split.mask is None:
        return info
    return {**info, ACTION_MASK: np.asarray(_at(obs, split.mask, ACTION_MASK), dtype=np.bool_)}


def _at(obs: Any, path: Path, name: str) -> Any:
    try:
        for key in path:
            obs = obs[key]
    except (LookupError, TypeError) as error:
        raise ConfigurationError(
            f"The environment returned an observation without the part {name} of its observation_space: {obs!r:.60}."
        ) from error
    return obs


def map_parts(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    """Apply a function to an array, or to every part of an observation, and to those of `others` with its name."""
    if isinstance(value, Mapping):
        return {name: function(part, *(other[name] for other in others)) for name, part in value.items()}
    return function(value, *others)


def assign_rows(target: Any, rows: Any, source: Any) -> None:
    """Write a value, or its parts by name, into rows of an array, or of the arrays of the parts."""
    if isinstance(target, dict):
        for name, part in target.items():
            part[rows] = source[name]
    else:
        target[rows] = source


def obs_shape(value: Any) -> Any:
    """Return the shape of an array or a space, or those of its parts by name."""
    if isinstance(value, gym.spaces.Dict):
        value = value.spaces
    return map_parts(lambda part: tuple(part.shape or ()), value)


def decode_parts(decoders: Mapping[str, Callable[[Any], Any]], obs: Any) -> dict[str, Any]:
    """Return the parts of one or several observations, each converted by its decoder."""
    return {name: decode(obs[name]) for name, decode in decoders.items()}
