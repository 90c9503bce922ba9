"""The value function's loss and how well it explains what happened."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from modules.functional.policy import masked_mean

Entries = Float[Tensor, "*N"]
Valid = Bool[Tensor, "*N"]


def clipped_value_loss(
    value: Entries,
    old_value: Entries,
    target: Entries,
    *,
    clip: float | Tensor | None,
    valid: Valid | None = None,
) -> Tensor:
    """Squared error of the value, pessimistic about moves beyond `clip` of the old value; 0-d.

    L = 1/2 mean max((v - R)^2, (v_old + clamp(v - v_old, -clip, clip) - R)^2)

    Args:
        value: v of the network that learns.
        old_value: v when the data was collected.
        target: R, in the units of the (scaled) return.
        clip: in the same units, so it must grow with the rewards; None leaves plain regression.
        valid: entries that count; None counts all.

    The 1/2 is part of the loss: presets that weigh a plain squared error by 0.5 use weight 1 here.
    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 9, has the plain squared error; the clipped form is that of the
    authors' implementation, item 9 of Huang et al. 2022, "The 37 implementation details of PPO".
    """
    error = (value - target).square()
    if clip is not None:
        move = torch.clamp(value - old_value, -clip, clip)  # type: ignore[arg-type]  # float or tensor, not a mixture
        near = old_value + move
        error = torch.maximum(error, (near - target).square())
    return 0.5 * masked_mean(error, valid)


@torch.no_grad()
def explained_variance(value: Entries, target: Entries, valid: Valid | None = None) -> Tensor:
    """Share of the target's variance that the value explains: 1 - Var(R - v) / Var(R), 0-d.

    1 is perfect, 0 no better than a constant, negative worse. A target that does not vary gives 0, never NaN.
    """
    both = torch.stack([target, target - value]).flatten(1)
    if valid is None:
        variance, unexplained = both.var(1, correction=0).unbind()
    else:
        counts = valid.flatten()
        both, number = torch.where(counts, both, 0.0).double(), counts.sum().clamp(min=1)
        away = torch.where(counts, both - both.sum(1, keepdim=True) / number, 0.0)
        variance, unexplained = (away.square().sum(1) / number).unbind()
    return torch.where(variance > 0, 1 - unexplained / variance, 0.0).to(value.dtype)
