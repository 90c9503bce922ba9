"""Losses and targets of action values: scalar (Huber), categorical (C51) and quantile regression (QR-DQN)."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

Each = Float[Tensor, "*N"]


def huber(error: Tensor, delta: float = 1.0) -> Tensor:
    """Compute the Huber loss, elementwise: e^2 / 2 if |e| <= delta, else delta (|e| - delta / 2).

    Source: Huber 1964, doi:10.1214/aoms/1177703732; delta 1 is the error clipping of Mnih et al. 2015,
    doi:10.1038/nature14236.
    """
    return F.huber_loss(error, torch.zeros_like(error), reduction="none", delta=delta)


def project_distribution(
    probability: Float[Tensor, "*N atoms"], return_: Each, discount: Each, support: Float[Tensor, "atoms"]
) -> Tensor:
    """Project the distribution of return + discount Z onto the atoms of Z, `[*N, atoms]`.

    m_i = sum_j [1 - |clamp(return + discount z_j, z_min, z_max) - z_i| / dz]_0^1 p_j

    Args:
        probability: probabilities of the atoms of the bootstrapped value.
        return_: sum of discounted rewards before it.
        discount: gamma**(number of steps); 0 after termination, all mass then lies at the return.
        support: values of the atoms, equally spaced, ascending.

    Source: Bellemare et al. 2017, arXiv:1707.06887, eq. 7.
    """
    spacing = support[1] - support[0]
    moved = return_.unsqueeze(-1) + discount.unsqueeze(-1) * support
    moved = moved.clamp(support[0], support[-1])
    near = 1 - (moved.unsqueeze(-2) - support.unsqueeze(-1)).abs() / spacing
    return (near.clamp(0, 1) * probability.unsqueeze(-2)).sum(-1)


def quantile_huber(
    quantile: Float[Tensor, "*N quantiles"], target: Float[Tensor, "*N targets"], *, delta: float = 1.0
) -> Tensor:
    """Compute the quantile regression loss with Huber errors, one loss for each of `[*N]`.

    L = sum_i mean_j |tau_i - [u_ij < 0]| huber(u_ij) / delta,   u_ij = target_j - quantile_i

    Args:
        quantile: predicted quantiles at the midpoints tau_i = (i + 1/2) / quantiles.
        target: samples of the target distribution.
        delta: error from which the loss is linear.

    Source: Dabney et al. 2018, arXiv:1710.10044, eq. 10 and algorithm 1.
    """
    number = quantile.shape[-1]
    midpoint = (torch.arange(number, device=quantile.device, dtype=quantile.dtype) + 0.5) / number
    error = target.unsqueeze(-2) - quantile.unsqueeze(-1)
    share = (midpoint.unsqueeze(-1) - (error < 0).to(error.dtype)).abs()
    return (share * huber(error, delta) / delta).mean(-1).sum(-1)


def rescaled_value(value: Tensor, epsilon: float = 1e-3) -> Tensor:
    """Compress values of any size, elementwise: h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x.

    Source: Pohlen et al. 2018, arXiv:1805.11593, section 3.2.
    """
    return value.sign() * ((value.abs() + 1).sqrt() - 1) + epsilon * value


def unscaled_value(value: Tensor, epsilon: float = 1e-3) -> Tensor:
    """Compute the inverse of `rescaled_value`, elementwise.

    h^-1(x) = sign(x) (((sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1)

    The difference of the root and 1 is computed as a quotient, which loses no digits in float32.

    Source: Pohlen et al. 2018, arXiv:1805.11593, appendix A, proposition A.2.
    """
    shifted = value.abs() + 1 + epsilon
    return value.sign() * ((2 * shifted / (1 + (1 + 4 * epsilon * shifted).sqrt())).square() - 1)


def sequence_priority(
    error: Float[Tensor, "*U steps N"], counts: Float[Tensor, "*U steps N"], eta: float = 0.9
) -> Float[Tensor, "*U N"]:
    """Compute the priorities of sequences from the absolute errors of their steps: eta max + (1 - eta) mean.

    Args:
        error: absolute errors.
        counts: 1 for steps that count, 0 for others; a sequence without steps that count has priority 0.
        eta: share of the largest error.

    Source: Kapturowski et al. 2019, "Recurrent Experience Replay in Distributed Reinforcement Learning", section 2.3.
    """
    error = error * counts
    return eta * error.amax(-2) + (1 - eta) * error.sum(-2) / counts.sum(-2).clamp(min=1)
