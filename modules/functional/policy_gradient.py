"""PPO's policy loss and value loss, advantage normalisation and explained variance.

Tensors have any shape; `valid` marks the entries that enter a mean.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Entries = Float[Tensor, "*N"]
Valid = Bool[Tensor, "*N"]
Scalar = Float[Tensor, ""]


class PolicyLoss(NamedTuple):
    """Policy loss, and two measures without gradient of how far the policy moved; all 0-d.

    approx_kl: KL(old || new) in nats.
    clip_fraction: fraction of entries whose ratio is outside the clip range.
    """

    loss: Scalar
    approx_kl: Scalar
    clip_fraction: Scalar


class Moments(NamedTuple):
    """Sum, sum of squares and count over the valid entries, float64 and 0-d; sums of all ranks can be added up."""

    sum: Scalar
    sum_of_squares: Scalar
    number: Scalar


def ppo_loss(
    log_prob: Entries,
    old_log_prob: Entries,
    advantage: Entries,
    *,
    clip: float | Tensor,
    valid: Valid | None = None,
) -> PolicyLoss:
    """Compute the clipped surrogate loss of proximal policy optimisation.

    L = -mean min(ratio A, clamp(ratio, 1 - clip, 1 + clip) A),   ratio = exp(log_prob - old_log_prob)

    Args:
        log_prob: log-probabilities of the stored actions under the current policy.
        old_log_prob: the same under the behaviour policy.
        advantage: usually normalised (`normalize`).
        clip: half-width of the clip range; a 0-d tensor can be annealed inside a compiled or captured update.
        valid: entries that count; None counts all.

    Returns:
        Loss, approximate KL as mean(ratio - 1 - log ratio), which is unbiased and never negative, and clip fraction.

    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 7, negated; the KL estimate is k3 of Schulman 2020,
    joschu.net/blog/kl-approx.html.
    """
    log_ratio = log_prob - old_log_prob
    if valid is not None:
        log_ratio = torch.where(valid, log_ratio, 0.0)
    ratio = log_ratio.exp()
    trusted = torch.clamp(ratio, 1 - clip, 1 + clip)  # type: ignore[arg-type]  # float or tensor, not a mixture
    surrogate = torch.minimum(ratio * advantage, trusted * advantage)
    with torch.no_grad():
        approx_kl = masked_mean(torch.expm1(log_ratio) - log_ratio, valid)
        clip_fraction = masked_mean(((ratio - 1).abs() > clip).to(ratio.dtype), valid)
    return PolicyLoss(-masked_mean(surrogate, valid), approx_kl, clip_fraction)


def masked_mean(x: Entries, valid: Valid | None = None) -> Tensor:
    """Return the mean over the valid entries, 0-d; 0 if there are none. Invalid entries have no effect, even NaN."""
    if valid is None:
        return x.mean()
    return torch.where(valid, x, 0.0).sum() / valid.sum().clamp(min=1)


def moments(x: Entries, valid: Valid | None = None) -> Moments:
    """Return sum, sum of squares and number of the valid entries, in float64."""
    if valid is None:
        x, number = x.double(), torch.full((), x.numel(), dtype=torch.float64, device=x.device)
    else:
        x, number = torch.where(valid, x, 0.0).double(), valid.sum(dtype=torch.float64)
    return Moments(x.sum(), x.square().sum(), number)


_moments = moments  # for `normalize`, whose argument has the same name


def normalize(x: Entries, valid: Valid | None = None, *, moments: Moments | None = None, eps: float = 1e-8) -> Tensor:
    """Return (x - mean) / (std + eps): mean 0 and standard deviation 1 over the valid entries.

    The standard deviation is the population's (divided by n), so a single entry, or equal entries, give zeros.

    Args:
        x: `[*N]`, usually advantages. Invalid entries are shifted and scaled like the rest.
        valid: entries that count; None counts all.
        moments: sums to use instead of `moments(x, valid)`: those added up over all ranks.
        eps: in the units of x.
    """
    if moments is None and valid is None:
        variance, mean = torch.var_mean(x.double(), correction=0)
        return (x - mean) / (variance.sqrt() + eps)  # 0-d: the result keeps the dtype of x
    total, squares, number = moments or _moments(x, valid)
    mean = total / number.clamp(min=1)
    variance = (squares / number.clamp(min=1) - mean.square()).clamp(min=0)
    return (x - mean.to(x.dtype)) / (variance.sqrt() + eps).to(x.dtype)


def clipped_value_loss(
    value: Entries,
    old_value: Entries,
    target: Entries,
    *,
    clip: float | Tensor | None,
    valid: Valid | None = None,
) -> Tensor:
    """Compute PPO's clipped value loss: squared error, with moves beyond `clip` from the old value not rewarded; 0-d.

    L = 1/2 mean max((v - R)^2, (v_old + clamp(v - v_old, -clip, clip) - R)^2)

    Args:
        value: v of the network that learns.
        old_value: v when the data was collected.
        target: R, in the units of the (scaled) return.
        clip: in the same units, so it must grow with the rewards; None leaves plain regression.
        valid: entries that count; None counts all.

    The 1/2 is part of the loss: presets that weigh a plain squared error by 0.5 use weight 1 here.
    Source: Schulman et al. 2017, arXiv:1707.06347, eq. 9, has the plain squared error; the clipped form is that of
    the authors' implementation, item 9 of Huang et al. 2022, "The 37 implementation details of PPO".
    """
    if valid is not None:  # so that no gradient of an invalid entry is NaN
        value, old_value, target = (torch.where(valid, each, 0.0) for each in (value, old_value, target))
    error = (value - target).square()
    if clip is not None:
        move = torch.clamp(value - old_value, -clip, clip)  # type: ignore[arg-type]  # float or tensor, not a mixture
        near = old_value + move
        error = torch.maximum(error, (near - target).square())
    return 0.5 * masked_mean(error, valid)


@torch.no_grad()
def explained_variance(value: Entries, target: Entries, valid: Valid | None = None) -> Tensor:
    """Return the fraction of the target's variance that the value explains: 1 - Var(R - v) / Var(R), 0-d.

    1 is perfect, 0 no better than a constant, negative worse. A constant target gives 0, never NaN.
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
