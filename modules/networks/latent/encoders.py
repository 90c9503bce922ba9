"""Encoders: means and variances `[T, N, D]` of the latent state from observations `[T, N, Dy]`, time first."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.functional.dynamics.gaussian import inverse_softplus
from modules.functional.dynamics.linear_gaussian import StateSensor
from modules.networks.base import silu_layers
from modules.networks.recurrent import GRU

SMALLEST_VARIANCE = 1e-6
"""Lower bound of a posterior's variance."""


class Encoder(Protocol):
    """Interface of encoders for latent models and agents; bring your own `nn.Module` with these members.

    dimensions: D, number of dimensions of the latent state.
    causal: whether the posterior of a row depends on no later row, as an agent requires.
    window: number of newest rows that an agent keeps for the encoder; 1 if the newest suffices.
    """

    dimensions: int
    causal: bool
    window: int

    def __call__(self, obs: Tensor, begins: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return means and variances `[T, N, D]` of the state, from observations `[T, N, Dy]`.

        Args:
            begins: `[T, N]` bool, rows where another trajectory starts; the first row alone if None.
        """
        ...


class GaussianEncoder(nn.Module):
    """Base of encoders: a linear head from features to a normal distribution with a small initial variance.

    Args:
        features: F, number of features that the subclass computes.
        dimensions: D, number of dimensions of the latent state.
        counts: observations are counts; the encoder gets log(1 + y).

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
        """Return features `[T, N, F]` of observations `[T, N, Dy]`."""
        raise NotImplementedError

    def forward(self, obs: Tensor, begins: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return means and variances `[T, N, D]`; see `Encoder`."""
        if begins is None:
            begins = torch.zeros(obs.shape[:2], dtype=torch.bool, device=obs.device)
        features = self.features(obs.log1p() if self.counts else obs, begins)
        return self.mean(features), F.softplus(self.raw_variance(features)) + SMALLEST_VARIANCE


class MLPEncoder(GaussianEncoder):
    """MLP with SiLU units of each observation separately.

    Args:
        observed: Dy, number of elements of an observation.
        dimensions: D, number of dimensions of the latent state.
        hidden: widths of the layers; an empty list leaves a linear encoder.
        counts: observations are counts; the encoder gets log(1 + y).

    Raises: ValueError if a number is out of range.
    """

    def __init__(self, observed: int, dimensions: int = 2, hidden: Sequence[int] = (64, 64), counts: bool = False):
        widths = (observed, *hidden)
        super().__init__(widths[-1], dimensions, counts)
        self.body = nn.Sequential(*silu_layers(widths))

    def features(self, obs: Tensor, begins: Tensor) -> Tensor:
        """Return the last hidden layer, or the observation."""
        return self.body(obs)

    @torch.no_grad()
    def init_linear_(self, sensor: StateSensor) -> None:
        """Set means and constant variances to those of a linear state estimate.

        Raises: ValueError with hidden layers, or for counts.
        """
        if len(self.body) or self.counts:
            raise ValueError(
                "A linear initialisation needs an encoder without hidden layers and counts: set its hidden to [] and"
                " its counts to false."
            )
        self.mean.weight.copy_(sensor.weight)
        self.mean.bias.copy_(sensor.bias)
        self.raw_variance.weight.zero_()
        self.raw_variance.bias.copy_(inverse_softplus(sensor.variance - SMALLEST_VARIANCE))


class GRUEncoder(GaussianEncoder):
    """GRU over the observations so far; if `bidirectional`, over later ones too, which only stored trajectories have.

    Args:
        observed: Dy, number of elements of an observation.
        dimensions: D, number of dimensions of the latent state.
        hidden: width of the state, per direction.
        bidirectional: smooth instead of filter; not possible for an acting agent.
        counts: observations are counts; the encoder gets log(1 + y).
        window: number of newest observations that an agent keeps for the encoder.

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
        """Return the states of all directions."""
        forth, *back = self.directions
        states = [_unrolled(forth, obs, begins)]
        if back:
            last = torch.cat([begins[1:], torch.ones_like(begins[:1])])
            states.append(_unrolled(back[0], obs.flip(0), last.flip(0)).flip(0))
        return torch.cat(states, -1)


def _unrolled(cells: nn.Module, obs: Tensor, begins: Tensor) -> Tensor:
    assert isinstance(cells, GRU)
    return cells.unroll(obs, cells.initial_state(obs.shape[1]), begins)
