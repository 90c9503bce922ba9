"""Where a rollout is written, and what goes on from one of its steps to the next."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.core.types import State, Step


class Live(NamedTuple):
    """What goes on from one step to the next, every leaf `[B, ...]`.

    obs, masks: what to act on.   actor: the policy's state.   envs: the environments', where they are made of tensors.
    reset: rows where an episode begins.   return_, length: of running episodes, as far as earlier rollouts saw them.
    """

    obs: Tensor
    masks: State
    actor: State
    envs: State
    reset: Tensor
    return_: Tensor
    length: Tensor


class Row(NamedTuple):
    """Where one step is written: views of the rollout's columns, obs being the one that the step leads to.

    step: takes an action there, of environments that are not made of tensors.
    begins: where an episode begins afterwards, if that says so and writes the whole answer itself.
    """

    obs: Tensor
    action: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    extras: dict[str, Tensor]
    episode: dict[str, Tensor]
    step: Callable[[Tensor], Step] | None = None
    begins: Tensor | None = None


def under(prefix: str, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those values, under a prefix."""
    return {prefix + name: value for name, value in values.items()}


def of(prefix: str, values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Those under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def column_of(length: int, value: Tensor) -> Tensor:
    """Room `[length, ...]` for as many values like this one `[...]`."""
    return torch.empty((length, *value.shape), dtype=value.dtype, device=value.device)
