"""What a latent state shows: normal observations, or Poisson counts whose logarithm of the rate is decoded.

Shapes: latent states `[..., D]`, observations `[..., Dy]`, whatever comes before.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap
from torch.nn import functional as F

from modules.functional.gaussian import log_density

SMALLEST_NOISE = 1e-4
"""Variance of a normal observation that is always there."""

LARGEST_LOG_RATE = 8.0
"""Of a count; a network that has lost its way would overflow otherwise."""


class Decoder(nn.Module):
    """What decoders share; a subclass gives `natural` and its slope.

    Args:
        dimensions: D.   observed: Dy.
        counts: Poisson counts, of which `natural` is the logarithm of the rate; else it is a mean.
        noise: standard deviation of normal observations, at first; every dimension learns its own.
    """

    def __init__(self, dimensions: int, observed: int, counts: bool, noise: float):
        super().__init__()
        self.dimensions, self.observed, self.counts = dimensions, observed, counts
        if not counts:
            raw = math.log(math.expm1(max(noise**2 - SMALLEST_NOISE, SMALLEST_NOISE)))
            self.raw_noise = nn.Parameter(torch.full((observed,), raw))

    @property
    def variance(self) -> Tensor:
        """Variances `[Dy]` of normal observations."""
        return F.softplus(self.raw_noise) + SMALLEST_NOISE

    def natural(self, latent: Tensor) -> Tensor:
        """The mean, or the logarithm of the rate, `[..., Dy]`."""
        raise NotImplementedError

    def slope(self, latent: Tensor) -> Tensor:
        """Derivative of `natural`, `[..., Dy, D]`."""
        each = vmap(jacrev(self.natural))(latent.reshape(-1, self.dimensions))
        return each.view(*latent.shape[:-1], self.observed, self.dimensions)

    def forward(self, latent: Tensor) -> Tensor:
        """The observation that is to be expected, `[..., Dy]`."""
        natural = self.natural(latent)
        return natural.clamp(max=LARGEST_LOG_RATE).exp() if self.counts else natural

    def log_likelihood(self, latent: Tensor, obs: Tensor) -> Tensor:
        """Logarithm of p(obs | latent) in nats, `[...]`."""
        natural = self.natural(latent)
        if not self.counts:
            return log_density(obs, natural, self.variance).sum(-1)
        log_rate = natural.clamp(max=LARGEST_LOG_RATE)
        return (obs * log_rate - log_rate.exp() - torch.lgamma(obs + 1)).sum(-1)

    def sensitivity(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """How what is expected changes with the state, `[..., Dy, D]`; the variances of an observation, `[..., Dy]`."""
        slope, expected = self.slope(latent), self(latent)
        if self.counts:
            return slope * expected.unsqueeze(-1), expected
        return slope, self.variance.expand_as(expected)

    @torch.no_grad()
    def start_(self, obs: Tensor) -> None:
        """Let the state zero show the mean of observations `[..., Dy]`: counts are hard to learn from afar."""


class IdentityDecoder(Decoder):
    """The state itself, with noise.

    Args:
        dimensions: D, of observations too.   noise: see `Decoder`.
    """

    def __init__(self, dimensions: int = 2, noise: float = 0.2):
        super().__init__(dimensions, dimensions, False, noise)

    def natural(self, latent: Tensor) -> Tensor:
        """The state."""
        return latent

    def slope(self, latent: Tensor) -> Tensor:
        """One."""
        eye = torch.eye(self.dimensions, dtype=latent.dtype, device=latent.device)
        return eye.expand(*latent.shape, self.dimensions)


class LinearDecoder(Decoder):
    """C z + b.

    Args:
        observed: Dy.   dimensions: D.   counts, noise: see `Decoder`; with counts the rate is log-linear.
        weight: C, `Dy` rows of `D` numbers, which is then known and stays as it is; null learns it.

    Raises: ValueError for a weight of another shape.
    """

    def __init__(
        self,
        observed: int,
        dimensions: int = 2,
        counts: bool = False,
        noise: float = 0.2,
        weight: Sequence[Sequence[float]] | None = None,
    ):
        super().__init__(dimensions, observed, counts, noise)
        self.linear = nn.Linear(dimensions, observed)
        nn.init.normal_(self.linear.weight, std=1 / math.sqrt(dimensions))
        nn.init.zeros_(self.linear.bias)
        if weight is not None:
            known = torch.tensor(weight)
            if known.shape != self.linear.weight.shape:
                raise ValueError(f"weight is {tuple(known.shape)}; it must be {observed} rows of {dimensions} numbers.")
            self.linear.weight = nn.Parameter(known, requires_grad=False)

    def natural(self, latent: Tensor) -> Tensor:
        """C z + b."""
        return self.linear(latent)

    def slope(self, latent: Tensor) -> Tensor:
        """C."""
        return self.linear.weight.expand(*latent.shape[:-1], self.observed, self.dimensions)

    @torch.no_grad()
    def start_(self, obs: Tensor) -> None:
        """Set b."""
        _start(self.linear, obs, self.counts)


class MLPDecoder(Decoder):
    """Layers with SiLU units.

    Args:
        observed: Dy.   dimensions: D.   hidden: widths.   counts, noise: see `Decoder`.
    """

    def __init__(
        self,
        observed: int,
        dimensions: int = 2,
        hidden: Sequence[int] = (64,),
        counts: bool = False,
        noise: float = 0.2,
    ):
        super().__init__(dimensions, observed, counts, noise)
        layers = [nn.Sequential(nn.Linear(a, b), nn.SiLU()) for a, b in pairwise((dimensions, *hidden))]
        self.body, self.linear = nn.Sequential(*layers), nn.Linear(hidden[-1], observed)

    def natural(self, latent: Tensor) -> Tensor:
        """The last layer."""
        return self.linear(self.body(latent))

    @torch.no_grad()
    def start_(self, obs: Tensor) -> None:
        """Set the last layer's bias."""
        _start(self.linear, obs, self.counts)


def _start(layer: nn.Linear, obs: Tensor, counts: bool) -> None:
    mean = obs.flatten(0, -2).mean(0)
    layer.bias.copy_(mean.clamp(min=1e-3).log() if counts else mean)
