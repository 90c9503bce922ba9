"""What observations say about the latent state: means and variances `[T, N, D]` from `[T, N, Dy]`, time first."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.networks.base import silu_layers
from modules.networks.recurrent import GRU

SMALLEST_VARIANCE = 1e-6
"""Of a posterior."""


class Encoder(Protocol):
    """What latent models and agents ask of an encoder; bring your own `nn.Module` with these members.

    dimensions: D.   causal: whether the posterior of a row looks at no later row, as an agent's must.
    window: newest rows that an agent keeps for it; 1 if the newest alone says all.
    """

    dimensions: int
    causal: bool
    window: int

    def __call__(self, obs: Tensor, begins: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Means and variances `[T, N, D]` of the state, from observations `[T, N, Dy]`.

        Args:
            begins: `[T, N]` bool, rows where another trajectory starts; the first row alone if None.
        """
        ...


class NormalEncoder(nn.Module):
    """What the encoders here share: how features become a normal distribution, which is narrow at first.

    Args:
        features: F, width of what the subclass computes.
        dimensions: D.
        counts: observations are counts, of which log(1 + y) is looked at.

    Raises: ValueError if a number is out of range.
    """

    causal = True
    window = 1

    def __init__(self, features: int, dimensions: int, counts: bool):
        super().__init__()
        if dimensions < 1:
            raise ValueError(f"{type(self).__name__}: dimensions is {dimensions}; it must be at least 1.")
        self.dimensions, self.counts = dimensions, counts
        self.mean, self.raw_variance = nn.Linear(features, dimensions), nn.Linear(features, dimensions)
        nn.init.zeros_(self.raw_variance.weight)
        nn.init.constant_(self.raw_variance.bias, -3.0)

    def features(self, obs: Tensor, begins: Tensor) -> Tensor:
        """`[T, N, F]` of observations `[T, N, Dy]`."""
        raise NotImplementedError

    def forward(self, obs: Tensor, begins: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Means and variances `[T, N, D]`; see `Encoder`."""
        if begins is None:
            begins = torch.zeros(obs.shape[:2], dtype=torch.bool, device=obs.device)
        features = self.features(obs.log1p() if self.counts else obs, begins)
        return self.mean(features), F.softplus(self.raw_variance(features)) + SMALLEST_VARIANCE


class MLPEncoder(NormalEncoder):
    """Every observation by itself, through layers with SiLU units.

    Args:
        observed: Dy.
        dimensions: D.
        hidden: widths of the layers; none leaves a linear encoder.
        counts: see `NormalEncoder`.

    Raises: ValueError if a number is out of range.
    """

    def __init__(self, observed: int, dimensions: int = 2, hidden: Sequence[int] = (64, 64), counts: bool = False):
        widths = (observed, *hidden)
        super().__init__(widths[-1], dimensions, counts)
        self.body = nn.Sequential(*silu_layers(widths))

    def features(self, obs: Tensor, begins: Tensor) -> Tensor:
        """The last hidden layer, or the observation."""
        return self.body(obs)


class GRUEncoder(NormalEncoder):
    """All observations up to now; `bidirectional`, those to come as well, which only stored trajectories can give.

    Args:
        observed: Dy.
        dimensions: D.
        hidden: width of the state, in either direction.
        bidirectional: smooth instead of filter; an agent cannot use that.
        counts: see `NormalEncoder`.
        window: newest observations that an agent keeps for it.

    Raises: ValueError if a number is out of range.

    Source: Cho et al. 2014, arXiv:1406.1078, for the cells; Krishnan et al. 2017, arXiv:1609.09869, section 4, for
    filters and smoothers as posteriors of latent dynamics.
    """

    def __init__(
        self,
        observed: int,
        dimensions: int = 2,
        hidden: int = 64,
        bidirectional: bool = False,
        counts: bool = False,
        window: int = 20,
    ):
        if min(hidden, window) < 1:
            raise ValueError(f"GRUEncoder: hidden is {hidden} and window {window}; each must be at least 1.")
        super().__init__(hidden * (1 + bidirectional), dimensions, counts)
        self.causal, self.window = not bidirectional, window
        directions = [GRU((observed,), hidden=hidden, encoder=()) for _ in range(1 + bidirectional)]
        self.directions = nn.ModuleList(directions)

    def features(self, obs: Tensor, begins: Tensor) -> Tensor:
        """The states of all directions."""
        forth, *back = self.directions
        states = [_unrolled(forth, obs, begins)]
        if back:
            last = torch.cat([begins[1:], torch.ones_like(begins[:1])])
            states.append(_unrolled(back[0], obs.flip(0), last.flip(0)).flip(0))
        return torch.cat(states, -1)


def _unrolled(cells: nn.Module, obs: Tensor, begins: Tensor) -> Tensor:
    assert isinstance(cells, GRU)
    return cells.unroll(obs, cells.initial_state(obs.shape[1]), begins)
