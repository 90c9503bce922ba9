"""The policy's loss and the statistics it needs. Tensors have any shape; `valid` marks the entries that count."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Entries = Float[Tensor, "*N"]
Valid = Bool[Tensor, "*N"]
Scalar = Float[Tensor, ""]


class PolicyLoss(NamedTuple):
    """The loss to descend, and two measures without gradient of how far the policy moved; all 0-d.

    approx_kl: KL(old || new) in nats.   clip_fraction: share of entries whose ratio left the trusted interval.
    """

    loss: Scalar
    approx_kl: Scalar
    clip_fraction: Scalar


class Moments(NamedTuple):
    """Sums over the valid entries, float64 and 0-d, that ranks may add up before they normalise."""

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
    """Clipped surrogate of proximal policy optimisation.

    L = -mean min(ratio A, clamp(ratio, 1 - clip, 1 + clip) A),   ratio = exp(log_prob - old_log_prob)

    Args:
        log_prob: of the stored actions under the policy that learns.
        old_log_prob: the same under the policy that acted.
        advantage: usually `normalised`.
        clip: half-width of the trusted interval; a 0-d tensor can be annealed inside a compiled or captured update.
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
    """Mean over the valid entries, 0-d; 0 if there are none. What stands in the others has no effect, NaN included."""
    if valid is None:
        return x.mean()
    return torch.where(valid, x, 0.0).sum() / valid.sum().clamp(min=1)


def moments(x: Entries, valid: Valid | None = None) -> Moments:
    """Sum, sum of squares and number of the valid entries, in float64."""
    if valid is None:
        x, number = x.double(), torch.full((), x.numel(), dtype=torch.float64, device=x.device)
    else:
        x, number = torch.where(valid, x, 0.0).double(), valid.sum(dtype=torch.float64)
    return Moments(x.sum(), x.square().sum(), number)


_moments = moments  # for `normalised`, whose argument has the same name


def normalised(x: Entries, valid: Valid | None = None, *, moments: Moments | None = None, eps: float = 1e-8) -> Tensor:
    """Shift and scale to mean 0 and standard deviation 1 over the valid entries: (x - mean) / (std + eps), `[*N]`.

    The deviation is the population's (divided by n), so one entry, or equal ones, give zeros.

    Args:
        x: usually advantages. Invalid entries are shifted and scaled like the rest.
        valid: entries that count; None counts all.
        moments: sums to use instead of `moments(x, valid)`: those of all ranks, added up.
        eps: in the units of x.
    """
    if moments is None and valid is None:
        variance, mean = torch.var_mean(x.double(), correction=0)
        return (x - mean) / (variance.sqrt() + eps)  # 0-d: the result keeps the dtype of x
    total, squares, number = moments or _moments(x, valid)
    mean = total / number.clamp(min=1)
    variance = (squares / number.clamp(min=1) - mean.square()).clamp(min=0)
    return (x - mean.to(x.dtype)) / (variance.sqrt() + eps).to(x.dtype)
