"""The layers that parts of latent models are made of."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def silu_layers(widths: Sequence[int]) -> list[nn.Module]:
    """Fully connected layers with SiLU units from each width to the next; none from a single width."""
    return [nn.Sequential(nn.Linear(a, b), nn.SiLU()) for a, b in pairwise(widths)]
