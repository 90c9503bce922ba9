"""Gradients of PPO's loss in closed form, without a graph: several dozen operations instead of autograd's hundred.

The loss is that of `PPO.loss`, a composition of the functions in `modules.functional.policy_gradient`; tests compare
value and gradients.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Entries = Float[Tensor, "*N"]
Valid = Bool[Tensor, "*N"]


class LossGradients(NamedTuple):
    """Metrics of the loss, and its gradients, `[*N]` each; the entropy's may be None.

    metrics: policy loss, value loss, entropy, approximate KL and clip fraction, `[5]`.
    """

    metrics: Tensor
    grad_log_prob: Tensor
    grad_value: Tensor
    grad_entropy: Tensor | None


def ppo_gradients(
    log_prob: Entries,
    entropy: Entries,
    value: Entries,
    old_log_prob: Entries,
    old_value: Entries,
    advantage: Entries,
    target: Entries,
    clip: float | Tensor,
    value_clip_range: float | None = None,
    value_loss_coef: float = 1.0,
    entropy_coef: float = 0.0,
    valid: Valid | None = None,
) -> LossGradients:
    """Compute the gradients of proximal policy optimisation's loss by log_prob, entropy and value, and its metrics.

    L = `ppo_loss` + value_loss_coef `clipped_value_loss` - entropy_coef `masked_mean`(entropy)

    Args:
        log_prob, entropy, value: of the current networks.
        old_log_prob, old_value: of the networks that collected the data.
        advantage: usually normalised (`normalize`).
        target: R, in the units of the (scaled) return.
        clip, value_clip_range: half-widths of the clip ranges of ratio and value; None leaves the value unclipped.
        value_loss_coef, entropy_coef: coefficients of value loss and entropy.
        valid: entries that count; None counts all. Invalid entries have gradient 0 and no effect, not even NaN.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 9, negated.
    """
    weight = 1 / entropy.numel() if valid is None else valid.sum().clamp(min=1).reciprocal()
    log_ratio = log_prob - old_log_prob
    ratio_m1 = log_ratio.expm1()  # ratio - 1
    clipped_ratio_m1 = torch.clamp(ratio_m1, -clip, clip)  # type: ignore[arg-type]  # float or tensor, not a mixture
    surrogate, clipped = (torch.addcmul(advantage, each, advantage) for each in (ratio_m1, clipped_ratio_m1))
    error, squared = _regression(value, old_value, target, value_clip_range)
    kl, is_clipped = ratio_m1 - log_ratio, ratio_m1 != clipped_ratio_m1
    terms = (-torch.minimum(surrogate, clipped), 0.5 * squared, entropy, kl, is_clipped)
    metrics = zero_invalid(torch.stack(terms), valid).flatten(1).sum(1) * weight
    grad_entropy = None
    if entropy_coef:
        grad_entropy = (torch.ones_like(entropy) if valid is None else valid) * (-entropy_coef * weight)
    grad_log_prob, grad_value = (surrogate <= clipped) * surrogate * -weight, error * (value_loss_coef * weight)
    return LossGradients(metrics, zero_invalid(grad_log_prob, valid), zero_invalid(grad_value, valid), grad_entropy)


def zero_invalid(x: Tensor, valid: Tensor | None) -> Tensor:
    """Return `x` with 0 in the invalid entries, even where they are NaN."""
    return x if valid is None else torch.where(valid, x, 0.0)


def _regression(value: Tensor, old: Tensor, target: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
    """Return half the derivative of the value's squared error and that error; with clipping, of the larger of two."""
    error = value - target
    if clip is None:
        return error, error.square()
    move = value - old
    clipped = (old + move.clamp(-clip, clip) - target).square()
    squared = error.square()
    return error * ((move.abs() <= clip) | (squared >= clipped)), torch.maximum(squared, clipped)
