"""Choices among a few: how one is drawn, and how one is forbidden."""

import torch
from torch import Tensor

MASKED = -1e8
"""Logit or value of what may not be chosen: finite, so that entropies and gradients are, and out of reach of noise."""


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise on the generator's device; the largest sum of logit and noise is a draw.

    It is -log E with E exponential: `exponential_` never draws 0, so it is always finite.
    """
    return torch.empty(shape, device=generator.device).exponential_(generator=generator).log_().neg_()
