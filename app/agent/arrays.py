"""Observations of an environment as tensors of a policy, and actions of a policy in the environment's units."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec
from datamodules.env_interface.obs_parts import ACTION_MASK
from datamodules.env_interface.spaces import make_action_encoder
from datamodules.envs.functional_torch_env import action_space

Array = np.ndarray[Any, Any]
ObsArray = Any
"""An observation or a batch of them: what `np.asarray` takes, or a mapping of parts."""


def obs_rows(obs: ObsArray, spaces: SpaceSpec) -> tuple[Any, bool]:
    """Return observations as tensors `[B, *obs_shape]` (parts by name), and whether it was a single one.

    Raises:
        ConfigurationError: for another shape, or values that the dtype of the space cannot hold.
    """
    parts: Any = spaces.get("obs_parts")
    if "obs_start" in spaces:
        choices = np.asarray(obs) - spaces["obs_start"]
        if not np.issubdtype(choices.dtype, np.integer) or choices.ndim > 1:
            raise ConfigurationError("obs must be an integer, or a batch of them: the observations are Discrete.")
        obs = np.eye(spaces["obs_shape"][0], dtype=np.float32)[choices]
    if parts is None:
        return _rows(_only(obs, spaces["obs_shape"]), spaces["obs_shape"], spaces["obs_dtype"], "obs")
    given = dict(_leaves(obs, ()))
    if missing := parts.keys() - given.keys():
        raise ConfigurationError(
            f"obs lacks {', '.join(sorted(missing))}; the agent was trained on the parts {', '.join(parts)}."
        )
    found = {name: _rows(given[name], part["shape"], part["dtype"], f"obs[{name!r}]") for name, part in parts.items()}
    if len({single for _, single in found.values()}) > 1:
        raise ConfigurationError("Some parts of obs are single and others are batches: give all parts the same rows.")
    return {name: rows for name, (rows, _) in found.items()}, next(iter(found.values()))[1]


def mask_in(obs: ObsArray) -> Array | None:
    """Return the `action_mask` that an observation holds as a part; None if it has none."""
    return dict(_leaves(obs, ())).get(ACTION_MASK) if isinstance(obs, Mapping | tuple) else None


def _leaves(obs: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a nested observation by name, as `datamodules.env_interface.obs_parts` names them."""
    if isinstance(obs, Mapping):
        for key, child in obs.items():
            yield from _leaves(child, (*path, str(key)))
    elif isinstance(obs, tuple):
        for index, child in enumerate(obs):
            yield from _leaves(child, (*path, str(index)))
    else:
        yield ".".join(path), obs


def _only(obs: Any, shape: tuple[int, ...]) -> Any:
    """Return the part of a Dict or Tuple observation of which training used only one: that of its shape."""
    if not isinstance(obs, Mapping | tuple) or (isinstance(obs, tuple) and all(map(np.isscalar, obs))):
        return obs
    parts = [part for name, part in _leaves(obs, ()) if name != ACTION_MASK]
    fitting = [part for part in parts if tuple(shape) in (np.shape(part), np.shape(part)[1:])]
    if len(fitting) != 1:
        raise ConfigurationError(f"obs has {len(fitting)} parts of shape {tuple(shape)}; give the agent's own part.")
    return fitting[0]


def _rows(value: Any, shape: tuple[int, ...], dtype: str, name: str) -> tuple[Tensor, bool]:
    array, shape = np.asarray(value), tuple(shape)
    single = array.shape == shape
    if not single and array.shape[1:] != shape:
        raise ConfigurationError(
            f"{name} has the shape {array.shape}; the agent was trained on {shape}, one or a batch of them."
        )
    kept = array.astype(dtype)
    if np.issubdtype(kept.dtype, np.integer) and not np.array_equal(kept, array):
        raise ConfigurationError(
            f"{name} holds {array.dtype} numbers that {dtype}, which the agent was trained on, cannot represent: pass"
            " the environment's own observations, not scaled ones."
        )
    return torch.from_numpy(kept[None] if single else kept), single


def action_encoder(spaces: SpaceSpec) -> Callable[[Array], Array]:
    """Return the function from a policy's actions `[B, ...]` to those of the environment's space."""
    return make_action_encoder(env_action_space(spaces))


def env_action_space(spaces: SpaceSpec) -> gymnasium.Space[Any]:
    """Return the environment's action space."""
    if (box := spaces.get("action_box")) is None:
        return action_space(spaces)
    shape, dtype = tuple(box["shape"]), np.dtype(box["dtype"])
    low, high = (np.array(bound, dtype=dtype).reshape(shape) for bound in (box["low"], box["high"]))
    return gymnasium.spaces.Box(low, high, shape, dtype.type)
