"""What follows each step of a rollout: the next observation, or the true last one of an episode that was cut."""

from collections.abc import Callable

import torch
from torch import Tensor

from datamodules.core.types import Rollout


def next_values(rollout: Rollout, values: Tensor, value: Callable[[Tensor], Tensor]) -> Tensor:
    """Values of what follows every step, before any reset, `[T, B]`.

    Args:
        values: of the rollout's observations, `[T+1, B]`.
        value: of observations `[S x B, *obs]`, here of the true last ones of truncated steps.
    """
    used = rollout.final_index >= 0
    if used.device.type == "cpu" and not used.any():
        return values[1:]
    final = value(rollout.final_obs.flatten(0, 1)).view_as(rollout.final_index)
    following = torch.cat([values[1:], torch.zeros_like(values[:1])])
    following.scatter_(0, torch.where(used, rollout.final_index, len(values) - 1), final.to(following.dtype))
    return following[:-1]
