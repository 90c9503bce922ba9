"""Observations of an environment as tensors of a policy, and actions of a policy in the environment's units."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec
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
    if parts is None:
        return _rows(obs, spaces["obs_shape"], spaces["obs_dtype"], "obs")
    if not isinstance(obs, Mapping) or obs.keys() != parts.keys():
        given = f"has the parts {sorted(obs)}" if isinstance(obs, Mapping) else f"is of type {type(obs).__name__}"
        raise ConfigurationError(f"obs {given}; the agent was trained on a mapping of the parts {sorted(parts)}.")
    found = {name: _rows(obs[name], part["shape"], part["dtype"], f"obs[{name!r}]") for name, part in parts.items()}
    if len({single for _, single in found.values()}) > 1:
        raise ConfigurationError("Some parts of obs are single and others are batches: give all parts the same rows.")
    return {name: rows for name, (rows, _) in found.items()}, next(iter(found.values()))[1]


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
    return make_action_encoder(action_space(spaces))
