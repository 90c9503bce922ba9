"""PPO's whole loss with its gradients in closed form: several dozen operations instead of autograd's hundred.

It equals the composition of the functions in `policy_gradient`; tests compare value and gradient.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Entries = Float[Tensor, "*N"]
Valid = Bool[Tensor, "*N"]


class LossOutput(NamedTuple):
    """Loss, 0-d, and its terms and diagnostics without gradient.

    measures: policy loss, value loss, entropy, approximate KL and clip fraction, `[5]`.
    """

    loss: Tensor
    measures: Tensor


def ppo_objective(
    log_prob: Entries,
    entropy: Entries,
    value: Entries,
    *,
    old_log_prob: Entries,
    old_value: Entries,
    advantage: Entries,
    target: Entries,
    clip: float | Tensor,
    value_clip_range: float | None = None,
    value_loss_coef: float = 1.0,
    entropy_coef: float = 0.0,
    valid: Valid | None = None,
) -> LossOutput:
    """Compute the whole loss of proximal policy optimisation.

    L = `ppo_loss` + value_loss_coef `clipped_value_loss` - entropy_coef `masked_mean`(entropy)

    Args:
        log_prob, entropy, value: of the current networks; gradients flow to these three only.
        old_log_prob, old_value: of the networks that collected the data.
        advantage: usually normalised (`normalize`).
        target: R, in the units of the (scaled) return.
        clip, value_clip_range: half-widths of the clip ranges of ratio and value; None leaves the value unclipped.
        valid: entries that count; None counts all. Invalid entries have no effect, not even NaN.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 9, negated.
    """
    entries = (log_prob, entropy, value, old_log_prob, old_value, advantage, target)
    settings = (clip, value_clip_range, value_loss_coef, entropy_coef, valid)
    return LossOutput(*_PPO.apply(*entries, *settings))  # type: ignore[no-untyped-call]


class LossGradients(NamedTuple):
    """Loss, `LossOutput.measures` and the gradients of the loss, `[*N]` each; the entropy's may be None."""

    loss: Tensor
    measures: Tensor
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
    """Return `ppo_objective` and its gradients by log_prob, entropy and value, without building a graph.

    Arguments are those of `ppo_objective`. Invalid entries contribute nothing to the sums and have gradient 0.
    """
    share = 1 / entropy.numel() if valid is None else valid.sum().clamp(min=1).reciprocal()
    log_ratio = log_prob - old_log_prob
    excess = log_ratio.expm1()  # ratio - 1
    trusted = torch.clamp(excess, -clip, clip)  # type: ignore[arg-type]  # float or tensor, not a mixture
    free, held = (torch.addcmul(advantage, each, advantage) for each in (excess, trusted))
    error, squared = _regression(value, old_value, target, value_clip_range)
    terms = (-torch.minimum(free, held), 0.5 * squared, entropy, excess - log_ratio, excess != trusted)
    measures = zero_invalid(torch.stack(terms), valid).flatten(1).sum(1) * share
    policy_loss, value_loss, mean_entropy, *_ = measures.unbind()
    loss = torch.add(policy_loss, value_loss, alpha=value_loss_coef).sub(mean_entropy, alpha=entropy_coef)
    grad_entropy = None
    if entropy_coef:
        grad_entropy = (torch.ones_like(entropy) if valid is None else valid) * (-entropy_coef * share)
    grad_log_prob, grad_value = (free <= held) * free * -share, error * (value_loss_coef * share)
    return LossGradients(
        loss, measures, zero_invalid(grad_log_prob, valid), zero_invalid(grad_value, valid), grad_entropy
    )


def zero_invalid(x: Tensor, valid: Tensor | None) -> Tensor:
    """Return `x` with 0 in the invalid entries, even where they are NaN."""
    return x if valid is None else torch.where(valid, x, 0.0)


class _PPO(torch.autograd.Function):
    """Autograd function whose forward pass computes the gradients too."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        loss, measures, *gradients = ppo_gradients(*arguments)
        ctx.save_for_backward(*(gradient for gradient in gradients if gradient is not None))
        ctx.mark_non_differentiable(measures)
        return loss, measures

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, grad_measures: Tensor) -> tuple[Tensor | None, ...]:
        grad_log_prob, grad_value, *grad_entropy = (grad_loss * gradient for gradient in ctx.saved_tensors)
        return (grad_log_prob, grad_entropy[0] if grad_entropy else None, grad_value, *[None] * 9)


def _regression(value: Tensor, old: Tensor, target: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
    """Return half the derivative of the value's squared error and that error; with clipping, of the larger of two."""
    error = value - target
    if clip is None:
        return error, error.square()
    move = value - old
    near = (old + move.clamp(-clip, clip) - target).square()
    squared = error.square()
    return error * ((move.abs() <= clip) | (squared >= near)), torch.maximum(squared, near)
