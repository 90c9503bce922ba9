"""PPO's loss with its gradients written out: a few dozen operations where autograd makes a hundred.

It equals the composition of the readable functions in `policy` and `value`, and tests hold it to them, value and
gradient alike.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Entries = Float[Tensor, "*N"]
Valid = Bool[Tensor, "*N"]


class Objective(NamedTuple):
    """The loss to descend, 0-d, and without gradient what it is made of and judged by.

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
    value_clip: float | None = None,
    value_weight: float = 1.0,
    entropy_weight: float = 0.0,
    valid: Valid | None = None,
) -> Objective:
    """The whole loss of proximal policy optimisation.

    L = `ppo_loss` + value_weight `clipped_value_loss` - entropy_weight `masked_mean`(entropy)

    Args:
        log_prob, entropy, value: of the networks that learn; gradients flow to these three only.
        old_log_prob, old_value: of the networks that acted.
        advantage: usually `normalised`.   target: R, in the units of the (scaled) return.
        clip, value_clip: half-widths of the trusted intervals of ratio and value; None leaves the value free.
        valid: entries that count; None counts all. What stands in the others has no effect, NaN included.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 9, negated.
    """
    entries = (log_prob, entropy, value, old_log_prob, old_value, advantage, target)
    settings = (clip, value_clip, value_weight, entropy_weight, valid)
    return Objective(*_PPO.apply(*entries, *settings))  # type: ignore[no-untyped-call]


class Gradients(NamedTuple):
    """The loss and `Objective.measures`, and the loss's gradients, `[*N]` each; None where it has no entropy."""

    loss: Tensor
    measures: Tensor
    by_log_prob: Tensor
    by_value: Tensor
    by_entropy: Tensor | None


def ppo_gradients(
    log_prob: Entries,
    entropy: Entries,
    value: Entries,
    old_log_prob: Entries,
    old_value: Entries,
    advantage: Entries,
    target: Entries,
    clip: float | Tensor,
    value_clip: float | None = None,
    value_weight: float = 1.0,
    entropy_weight: float = 0.0,
    valid: Valid | None = None,
) -> Gradients:
    """`ppo_objective` and its gradients by what learns; arguments as there. Nothing of it remembers a graph.

    Of the entries that do not count nothing is left in the sums, and no gradient.
    """
    share = 1 / entropy.numel() if valid is None else valid.sum().clamp(min=1).reciprocal()
    log_ratio = log_prob - old_log_prob
    excess = log_ratio.expm1()  # the ratio less 1
    trusted = torch.clamp(excess, -clip, clip)  # type: ignore[arg-type]  # float or tensor, not a mixture
    free, held = (torch.addcmul(advantage, each, advantage) for each in (excess, trusted))
    error, squared = _regression(value, old_value, target, value_clip)
    terms = (-torch.minimum(free, held), 0.5 * squared, entropy, excess - log_ratio, excess != trusted)
    measures = counted(torch.stack(terms), valid).flatten(1).sum(1) * share
    policy_loss, value_loss, mean_entropy, *_ = measures.unbind()
    loss = torch.add(policy_loss, value_loss, alpha=value_weight).sub(mean_entropy, alpha=entropy_weight)
    by_entropy = None
    if entropy_weight:
        by_entropy = (torch.ones_like(entropy) if valid is None else valid) * (-entropy_weight * share)
    by_log_prob, by_value = (free <= held) * free * -share, error * (value_weight * share)
    return Gradients(loss, measures, counted(by_log_prob, valid), counted(by_value, valid), by_entropy)


def counted(x: Tensor, valid: Tensor | None) -> Tensor:
    """With 0 where an entry does not count, whatever it is."""
    return x if valid is None else torch.where(valid, x, 0.0)


class _PPO(torch.autograd.Function):
    """Forward makes the gradients too."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor]:
        loss, measures, *gradients = ppo_gradients(*arguments)
        ctx.save_for_backward(*(gradient for gradient in gradients if gradient is not None))
        ctx.mark_non_differentiable(measures)
        return loss, measures

    @staticmethod
    def backward(ctx: Any, by_loss: Tensor, by_measures: Tensor) -> tuple[Tensor | None, ...]:
        by_log_prob, by_value, *by_entropy = (by_loss * gradient for gradient in ctx.saved_tensors)
        return (by_log_prob, by_entropy[0] if by_entropy else None, by_value, *[None] * 9)


def _regression(value: Tensor, old: Tensor, target: Tensor, clip: float | None) -> tuple[Tensor, Tensor]:
    """Half the derivative of the value's squared error, and that error: the larger of two where moves are clipped."""
    error = value - target
    if clip is None:
        return error, error.square()
    move = value - old
    near = (old + move.clamp(-clip, clip) - target).square()
    squared = error.square()
    return error * ((move.abs() <= clip) | (squared >= near)), torch.maximum(squared, near)
