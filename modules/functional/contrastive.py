"""Contrastive learning of features in time: which steps are positives, and the InfoNCE loss."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F


class InfoNCE(NamedTuple):
    """InfoNCE of every anchor, all `[N]`.

    loss: -log of the positive's share of the exponentiated similarities.
    logsumexp: log-sum-exp of the negatives' similarities.
    correct: whether the positive is more similar than every negative.
    """

    loss: Float[Tensor, "N"]
    logsumexp: Float[Tensor, "N"]
    correct: Bool[Tensor, "N"]


def steps_before_boundary(boundary: Bool[Tensor, "T B"]) -> Int[Tensor, "T B"]:
    """Return how many steps follow every step before the next boundary or the end of the series, from 0.

    Args:
        boundary: steps that do not continue the step before: first steps of episodes, and invalid ones.
    """
    number = len(boundary)
    step = torch.arange(number, device=boundary.device).unsqueeze(1)
    at = torch.where(boundary, step, number)
    next_at = torch.cat([at[1:], torch.full_like(at[:1], number)]).flip(0).cummin(0).values.flip(0)
    return next_at - step - 1


def truncated_geometric(uniform: Float[Tensor, "*N"], longest: Int[Tensor, "*N"], *, gamma: float) -> Int[Tensor, "*N"]:
    """Return geometric offsets, conditioned on being at most `longest`, by the inverse of their distribution.

    P(d) = (1 - gamma) gamma^(d-1) / (1 - gamma^longest),   d = 1, ..., longest

    Args:
        uniform: uniforms in [0, 1), one for each offset.
        longest: largest possible offset; where it is 0, the result is 1.
        gamma: in (0, 1); the mean without a bound is 1 / (1 - gamma).

    Raises:
        ValueError: If gamma is not in (0, 1).
    """
    if not 0.0 < gamma < 1.0:
        raise ValueError(f"truncated_geometric: gamma is {gamma}; it must lie between 0 and 1.")
    within = 1.0 - torch.pow(gamma, longest.to(uniform.dtype))
    offset = 1 + (torch.log1p(-uniform * within) / math.log(gamma)).long()
    return torch.minimum(offset, longest.clamp(min=1))


def info_nce(
    anchor: Float[Tensor, "N F"],
    positive: Float[Tensor, "N F"],
    negative: Float[Tensor, "N K F"],
    excluded: Bool[Tensor, "N K"],
    *,
    temperature: float,
) -> InfoNCE:
    """Compare every anchor with its positive and its negatives, by cosine similarity.

    L = -log(e^(s(a, p) / tau) / (e^(s(a, p) / tau) + sum_k e^(s(a, n_k) / tau)))

    Args:
        anchor: features.   positive: of each anchor.   negative: K of each anchor.
        excluded: negatives that do not count, such as one that is the positive. An anchor without any has no defined
            result.
        temperature: tau, above 0.

    Raises:
        ValueError: If the temperature is not positive.

    Source: van den Oord et al. 2018, arXiv:1807.03748, eq. 4, with the cosine similarity over a temperature as density
    ratio, as in Chen et al. 2020, arXiv:2002.05709, eq. 1.
    """
    if not temperature > 0:
        raise ValueError(f"info_nce: temperature is {temperature}; it must be positive.")
    anchor, positive, negative = (F.normalize(features, dim=-1) for features in (anchor, positive, negative))
    near = (anchor * positive).sum(-1) / temperature
    far = ((anchor.unsqueeze(1) * negative).sum(-1) / temperature).masked_fill(excluded, -math.inf)
    logsumexp = far.logsumexp(-1)
    return InfoNCE(torch.logaddexp(near, logsumexp) - near, logsumexp, near > far.amax(-1))
