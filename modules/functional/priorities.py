"""Prioritised drawing of segments: probabilities, importance weights and draws by the inverse distribution function."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

SMALLEST_PRIORITY = 1e-6
"""Added to every priority, so that a segment whose advantages are 0 can be drawn."""


@torch.no_grad()
def segment_probabilities(
    advantage: Float[Tensor, "T S"], alpha: float, valid: Bool[Tensor, "T S"] | None = None
) -> Float[Tensor, "S"]:
    """Return the probability of drawing each segment: p_i proportional to (sum_t |A_ti|)^alpha, float64.

    Args:
        advantage: of T steps of S segments.
        alpha: 0 draws all alike, 1 in proportion to the sums.
        valid: steps that count; None counts all.

    Source: Schaul et al. 2016, arXiv:1511.05952, eq. 1, for segments with their absolute advantages.
    """
    size = advantage.abs() if valid is None else torch.where(valid, advantage.abs(), 0.0)
    priority = size.double().sum(0).pow(alpha) + SMALLEST_PRIORITY
    return priority / priority.sum()


@torch.no_grad()
def importance_weights(probability: Float[Tensor, "S"], beta: float) -> Float[Tensor, "S"]:
    """Return (S p_i)^-beta, float32: the weights whose mean over drawn segments, at beta 1, is that over all segments.

    Source: Schaul et al. 2016, arXiv:1511.05952, section 3.4, without the division by the largest weight.
    """
    return (len(probability) * probability).pow(-beta).float()


@torch.no_grad()
def draw_with_replacement(probability: Float[Tensor, "S"], noise: Float[Tensor, "N"]) -> Int[Tensor, "N"]:
    """Draw N independent indices by the inverse of the cumulative distribution, without reading a value back.

    Args:
        probability: of each index; sums to 1.
        noise: uniforms in [0, 1).
    """
    cumulative = probability.double().cumsum(0)
    drawn = torch.searchsorted(cumulative, noise.double() * cumulative[-1], right=True)
    return drawn.clamp(max=len(probability) - 1)
