"""Bootstrap values of a rollout: of the next observation, or of the true last one where an episode was truncated."""

from collections.abc import Callable

import torch
from torch import Tensor

from datamodules.core.pytree import tree_map
from datamodules.core.types import Obs, Rollout, State


def next_values(rollout: Rollout, values: Tensor, value: Callable[[Obs], Tensor]) -> Tensor:
    """Return the value of the observation after every step, before any reset, `[T, B]`.

    Args:
        values: of the rollout's observations, `[T+1, B]`.
        value: maps observations `[S x B, *obs]` to values; called with the true last ones of truncated steps.
    """
    used = rollout.final_step >= 0
    if used.device.type == "cpu" and not used.any():
        return values[1:]
    final = value(tree_map(lambda part: part.flatten(0, 1), rollout.final_obs)).view_as(rollout.final_step)
    following = torch.cat([values[1:], torch.zeros_like(values[:1])])
    following.scatter_(0, torch.where(used, rollout.final_step, len(values) - 1), final.to(following.dtype))
    return following[:-1]


def gather_states(states: State, index: Tensor) -> State:
    """Return the states of all rows at the steps `index` `[S, B]`, each leaf `[S x B, ...]` from `[T, B, ...]`.

    An unused slot (-1) takes step 0.
    """
    rows = torch.arange(index.shape[1], device=index.device)
    return {name: leaf[index.clamp(min=0), rows].flatten(0, 1) for name, leaf in states.items()}
