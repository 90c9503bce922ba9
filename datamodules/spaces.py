"""From Gymnasium's spaces to plain data, and between its arrays and the numbers that policies see and say."""

from collections.abc import Callable

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from datamodules.types import ActionKind, Spaces, UsageError

Array = np.ndarray


def spaces_of(observation: gym.Space, action: gym.Space, *, name: str) -> Spaces:
    """What an environment shows and takes, as plain data.

    Observations: Box of floats becomes float32, of uint8 stays uint8, of other integers becomes int64; Discrete becomes
    one-hot float32 `[n]`; MultiDiscrete and MultiBinary become float32. Actions: Box with finite bounds, Discrete,
    MultiDiscrete of one dimension, MultiBinary; the shape of an action is always flat.

    Args:
        name: the environment, for messages.

    Raises: UsageError for every other space.
    """
    obs_shape, obs_dtype = _observation(observation, name)
    kind, sizes, low, high, start = _action(action, name)
    return Spaces(
        obs_shape=obs_shape,
        obs_dtype=obs_dtype,
        action_kind=kind,
        action_sizes=sizes,
        action_low=low,
        action_high=high,
        action_start=start,
        agents=1,
    )


def _observation(space: gym.Space, name: str) -> tuple[tuple[int, ...], str]:
    match space:
        case Box() if np.issubdtype(space.dtype, np.floating):
            return space.shape, "float32"
        case Box():
            return space.shape, "uint8" if space.dtype == np.uint8 else "int64"
        case Discrete():
            return (int(space.n),), "float32"
        case MultiDiscrete() | MultiBinary():
            return space.shape, "float32"
    raise UsageError(
        f"{name} shows a {type(space).__name__} observation, and only Box, Discrete, MultiDiscrete and MultiBinary are "
        "taken: register the environment with gymnasium.wrappers.FlattenObservation around it."
    )


def _action(space: gym.Space, name: str) -> tuple[ActionKind, list[int], list[float], list[float], list[int]]:
    match space:
        case Discrete():
            return "discrete", [int(space.n)], [], [], [int(space.start)]
        case MultiDiscrete() if space.nvec.ndim == 1:
            return "multidiscrete", space.nvec.tolist(), [], [], space.start.tolist()
        case MultiBinary():
            parts = int(np.prod(space.shape))
            return "binary", [2] * parts, [], [], [0] * parts
        case Box() if space.is_bounded():
            low, high = space.low.astype(np.float64), space.high.astype(np.float64)
            return "continuous", [], low.ravel().tolist(), high.ravel().tolist(), []
        case Box():
            raise UsageError(
                f"{name} takes actions in a Box of shape {space.shape} without finite bounds: give its action space "
                "finite bounds, for example with gymnasium.wrappers.TransformAction."
            )
    raise UsageError(
        f"{name} takes actions in a {type(space).__name__} of shape {space.shape}, and only Box, Discrete, "
        "MultiDiscrete of one dimension and MultiBinary are taken: write a "
        "gymnasium.ActionWrapper that offers one of these."
    )


def observation_reader(space: gym.Space) -> Callable[[Array], Array]:
    """A function from batched observations of `space` to numbers `[B, *obs_shape]`: one-hot rows if it is Discrete."""
    if not isinstance(space, Discrete):
        return np.asarray
    one_hot, start = np.eye(int(space.n), dtype=np.float32), int(space.start)
    return lambda array: one_hot[np.asarray(array) - start]


def action_writer(space: gym.Space) -> Callable[[Array], Array]:
    """A function from actions of a policy (`[B]` or `[B, parts]`, 0-based, unclipped) to batched actions of `space`.

    Clips a Box action to its bounds, adds the first value of discrete parts, restores shape and dtype. The result never
    shares a buffer with an earlier step, so that an environment may keep it.
    """
    shape, dtype = space.shape or (), space.dtype
    if isinstance(space, Box):
        low, high = space.low, space.high
        return lambda array: np.minimum(np.maximum(array.reshape(-1, *shape), low), high).astype(dtype, copy=False)
    start = np.asarray(getattr(space, "start", 0), dtype=np.int64)
    if not start.any():
        return lambda array: array.reshape(-1, *shape).astype(dtype)
    return lambda array: (array.reshape(-1, *shape) + start).astype(dtype, copy=False)
