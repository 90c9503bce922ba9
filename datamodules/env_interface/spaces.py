"""Convert Gymnasium's spaces to SpaceSpec, and observations and actions between Gymnasium and policies."""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import ActionType, BoxAction, ObsPart, SpaceSpec
from datamodules.env_interface.action_parts import HybridSpace
from datamodules.env_interface.obs_parts import decode_parts, split_space

Array = np.ndarray

DISTINCT = 256
"""Fewest float32 numbers between the bounds of an action's part: with fewer it cannot be rescaled to [-1, 1]."""


def to_space_spec(observation: gym.Space, action: gym.Space, *, name: str) -> SpaceSpec:
    """Convert observation and action space to plain data.

    Observations: Box of floats becomes float32, of uint8 stays uint8, of other integers becomes int64, and of shape
    `()` gets the shape `(1,)`; Discrete becomes one-hot float32 `[n]`; MultiDiscrete and MultiBinary become float32.
    `obs_high` is the largest value of bytes, if below 255, and of images (`obs_bound`).
    Dict and Tuple observations have `obs_parts` (`datamodules.env_interface.obs_parts`): Discrete and MultiDiscrete
    parts stay int64 and count from 0, MultiBinary stays int8.
    Actions: Box with finite bounds, Discrete, MultiDiscrete of one dimension, MultiBinary, and by
    `datamodules.env_interface.action_parts` Dict and Tuple of these; actions are flat, and the
    parts of a Box whose bounds are equal are left out (`make_action_encoder` fills them in).

    Args:
        name: name of the environment in messages.

    Raises: ConfigurationError for every other space.
    """
    observation = split_space(observation, name).space
    parts = isinstance(observation, gym.spaces.Dict)
    obs_shape, obs_dtype = ((), "dict") if parts else _observation(observation, name)
    kind, sizes, low, high, start = _action(action, name)
    spaces = SpaceSpec(
        obs_shape=obs_shape,
        obs_dtype=obs_dtype,
        action_type=kind,
        action_sizes=sizes,
        action_low=low,
        action_high=high,
        action_start=start,
        num_agents=1,
    )
    if isinstance(action, Box) and not _is_plain(action):
        low, high = (bound.ravel().tolist() for bound in (action.low, action.high))
        spaces["action_box"] = BoxAction(low=low, high=high, shape=action.shape, dtype=str(action.dtype))
    if isinstance(observation, gym.spaces.Dict):
        return {**spaces, "obs_parts": {key: _part(space, name) for key, space in observation.spaces.items()}}
    if isinstance(observation, Discrete):
        spaces["obs_start"] = int(observation.start)
    bound = obs_bound(observation) if isinstance(observation, Box) else None
    return spaces if bound is None else {**spaces, "obs_high": bound}


def _is_plain(action: Box) -> bool:
    return len(action.shape) == 1 and action.dtype == np.float32 and bool((action.low < action.high).all())


def obs_bound(space: Box) -> float | None:
    """Return the largest observation value that networks scale to 1, if the dtype does not determine it.

    It exists for bytes below 255, such as the category codes of a grid; for images (two dimensions or more) of other
    integers from 0 to at most 255; and is 255 for floating-point images with exactly the bounds 0 and 255.
    """
    low, high = float(space.low.min(initial=0)), float(space.high.max(initial=0))
    if space.dtype == np.uint8:
        return max(high, 1.0) if high < 255 else None
    image = len(space.shape) > 1 and low >= 0 and high <= 255
    return high if image and (high > 1 if _whole(space) else high == 255 == space.high.min()) else None


def _part(space: gym.Space, name: str) -> ObsPart:
    if isinstance(space, Discrete):
        return ObsPart(shape=(), dtype="int64", sizes=[int(space.n)])
    if isinstance(space, MultiDiscrete):
        return ObsPart(shape=space.shape, dtype="int64", sizes=space.nvec.ravel().tolist())
    if isinstance(space, MultiBinary):
        return ObsPart(shape=space.shape, dtype="int8")
    shape, dtype = _observation(space, name)
    part, bound = ObsPart(shape=shape, dtype=dtype), obs_bound(space) if isinstance(space, Box) else None
    return part if bound is None else {**part, "high": bound}


def _observation(space: gym.Space, name: str) -> tuple[tuple[int, ...], str]:
    match space:
        case Box() if np.issubdtype(space.dtype, np.floating):
            return space.shape or (1,), "float32"
        case Box():
            return space.shape or (1,), "uint8" if space.dtype == np.uint8 else "int64"
        case Discrete():
            return (int(space.n),), "float32"
        case MultiDiscrete() | MultiBinary():
            return space.shape, "float32"
    cure = "write a gymnasium.ObservationWrapper with one of these"
    if space.is_np_flattenable:
        cure = "register the environment with gymnasium.wrappers.FlattenObservation around it"
    raise ConfigurationError(
        f"{name} has a {type(space).__name__} observation, but only Box, Discrete, MultiDiscrete, MultiBinary, and "
        f"Dict and Tuple of these are supported: {cure}."
    )


def _action(space: gym.Space, name: str) -> tuple[ActionType, list[int], list[float], list[float], list[int]]:
    match space:
        case HybridSpace():
            first = len(space.sizes)
            low, high = (bound.astype(np.float64)[first:] for bound in (space.low, space.high))
            free = free_parts(low, high, name=name)
            return "hybrid", space.sizes, low[free].tolist(), high[free].tolist(), [0] * first
        case Discrete():
            return "discrete", [int(space.n)], [], [], [int(space.start)]
        case MultiDiscrete() if space.nvec.ndim == 1:
            return "multidiscrete", space.nvec.tolist(), [], [], space.start.tolist()
        case MultiBinary():
            parts = int(np.prod(space.shape))
            return "binary", [2] * parts, [], [], [0] * parts
        case Box() if space.is_bounded():
            low, high = (bound.astype(np.float64).ravel() for bound in (space.low, space.high))
            free = free_parts(low, high, whole=_whole(space), name=name)
            return "continuous", [], low[free].tolist(), high[free].tolist(), []
        case Box():
            raise ConfigurationError(
                f"{name} takes actions in a Box of shape {space.shape} without finite bounds: give its action space "
                "finite bounds, for example with gymnasium.wrappers.TransformAction."
            )
    raise ConfigurationError(
        f"{name} takes actions in a {type(space).__name__} of shape {space.shape}, but only Box, Discrete, "
        "MultiDiscrete of one dimension and MultiBinary are supported: write a "
        "gymnasium.ActionWrapper that offers one of these."
    )


def free_parts(low: Array, high: Array, *, name: str, whole: bool = False) -> Array:
    """Return which parts of a continuous action can vary, bool `[parts]`.

    Args:
        low, high: bounds, float64 `[parts]`.
        name: name of the environment in messages.
        whole: whether the action consists of integers.

    Raises: ConfigurationError if no part can vary, and for a range that float32 cannot rescale.
    """
    free = low < high
    if not free.any():
        raise ConfigurationError(
            f"{name} has actions without a choice: their lower bounds {low.tolist()} are not below"
            f" the upper bounds {high.tolist()}. Change the bounds of its action space."
        )
    for part in free.nonzero()[0]:
        bounds = low[part], high[part]
        with np.errstate(over="ignore"):
            first, last = np.asarray(bounds).astype(np.float32)
            fine = np.isfinite(last - first) and _distinct(first, last) >= (
                2 * (bounds[1] - bounds[0]) if whole else DISTINCT
            )
        if not fine:
            raise ConfigurationError(
                f"{name} takes actions from {bounds[0]:g} to {bounds[1]:g} in part {part}, a range that float32 cannot"
                " rescale: give the environment an action space such as [-1, 1] with"
                " gymnasium.wrappers.RescaleAction or your own wrapper."
            )
    return free


def without_constants(spaces: SpaceSpec, name: str) -> SpaceSpec:
    """Remove the parts of a continuous action whose bounds are equal, as `to_space_spec` does.

    Raises: ConfigurationError as `free_parts` does.
    """
    if spaces["action_type"] != "continuous":
        return spaces
    low, high = (np.asarray(spaces[bound], dtype=np.float64) for bound in ("action_low", "action_high"))
    free = free_parts(low, high, name=name)
    return {**spaces, "action_low": low[free].tolist(), "action_high": high[free].tolist()}


def zero_obs(spaces: SpaceSpec, rows: int) -> Any:
    """Return zeros for the observations of `rows` rows: an array `[B, *obs_shape]`, or one for every part by name."""
    if parts := spaces.get("obs_parts"):
        return {name: np.zeros((rows, *part["shape"]), part["dtype"]) for name, part in parts.items()}
    return np.zeros((rows, *spaces["obs_shape"]), spaces["obs_dtype"])


def make_obs_decoder(space: gym.Space) -> Callable[[Any], Any]:
    """Return a function that converts one or several observations of `space` to `[*obs_shape]` or `[B, *obs_shape]`.

    Discrete becomes one-hot rows; a Box of shape `()` gets a dimension of size 1. The parts of a Dict stay a
    dictionary, in which Discrete and MultiDiscrete count from 0.
    """
    if isinstance(space, gym.spaces.Dict):
        return partial(decode_parts, {name: _part_decoder(part) for name, part in space.spaces.items()})
    if isinstance(space, Discrete):
        one_hot, start = np.eye(int(space.n), dtype=np.float32), int(space.start)
        return lambda array: one_hot[np.asarray(array) - start]
    return np.asarray if space.shape else lambda array: np.asarray(array)[..., None]


def _part_decoder(space: gym.Space) -> Callable[[Any], Any]:
    if not isinstance(space, Discrete | MultiDiscrete):
        return make_obs_decoder(space)
    start = np.asarray(space.start, dtype=np.int64)
    return lambda array: np.asarray(array) - start


def make_action_encoder(space: gym.Space) -> Callable[[Array], Array]:
    """Return a function from policy actions (`[B]` or `[B, parts]`, 0-based, unclipped) to batched actions of `space`.

    It clips a Box action to its bounds, fills in its constant parts, adds the first value of discrete parts, and
    restores shape and dtype. Integers of a Box share its range evenly: each of n integers covers 1/n of it. The result
    never shares memory with an earlier step, so that an environment may keep it.
    """
    shape, dtype = space.shape or (), space.dtype
    if isinstance(space, HybridSpace):
        first = len(space.sizes)
        write = _box_writer(Box(space.low[first:], space.high[first:]))
        return lambda array: np.concatenate([array[:, :first], write(array[:, first:])], -1).astype(dtype, copy=False)
    if isinstance(space, Box):
        return _box_writer(space)
    start = np.asarray(getattr(space, "start", 0), dtype=np.int64)
    if not start.any():
        return lambda array: array.reshape(-1, *shape).astype(dtype)
    return lambda array: (array.reshape(-1, *shape) + start).astype(dtype, copy=False)


def _box_writer(space: Box) -> Callable[[Array], Array]:
    shape, dtype, low, high = space.shape, space.dtype, space.low, space.high
    free = (low < high).ravel()

    def filled(array: Array) -> Array:
        if free.all():
            return array.reshape(-1, *shape)
        full = np.repeat(low.reshape(1, -1), len(array), 0).astype(np.result_type(low, array))
        full[:, free] = array.reshape(len(array), -1)
        return full.reshape(-1, *shape)

    if not _whole(space):
        return lambda array: np.minimum(np.maximum(filled(array), low), high).astype(dtype, copy=False)
    first, steps = low.astype(np.float64), high.astype(np.float64) - low
    share = (steps + 1) / np.maximum(steps, 1)

    def whole(array: Array) -> Array:
        above = (filled(array) - first).clip(0, steps)
        return (first + np.minimum(np.floor(above * share), steps)).astype(dtype)

    return whole


def _whole(space: Box) -> bool:
    return not np.issubdtype(space.dtype, np.floating)


def _distinct(first: np.float32, last: np.float32) -> float:
    """Return approximately how many float32 numbers lie between two, at the coarsest spacing."""
    return float((last - first) / np.spacing(max(abs(first), abs(last))))
