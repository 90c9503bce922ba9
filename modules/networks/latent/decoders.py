"""What a latent state shows: normal observations, or Poisson counts, of whose rate the logarithm is decoded.

Shapes: latent states `[..., D]`, observations `[..., Dy]`, whatever comes before.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import jacfwd, vmap
from torch.nn import functional as F

from modules.functional.dynamics.gaussian import log_density
from modules.networks.base import silu_layers

SMALLEST_NOISE = 1e-4
"""Variance of a normal observation that is always there."""

LARGEST_LOG_RATE = 8.0
"""Of a count; a network that has lost its way would overflow otherwise."""

SMALLEST_RATE = 1e-8
"""Variance of a count that is never expected; information divides by it."""

FIRST_WEIGHT = 0.1
"""Standard deviation of a linear decoder's first weights, times the root of D: encoders then find all of the state."""

SMALLEST_COUNT = 1e-3
"""Mean count that a decoder begins with where nothing was counted."""


class Decoder(nn.Module):
    """What decoders share; to add one, give `natural`, and `bias` if it has one.

    Args:
        dimensions: D.   observed: Dy.
        counts: Poisson counts a step, of which `natural` is the logarithm of the rate; else it is a mean.
        noise: standard deviation of normal observations, at first; every dimension learns its own.

    Raises: ValueError if a number is out of range.
    """

    def __init__(self, dimensions: int, observed: int, counts: bool, noise: float):
        super().__init__()
        if min(dimensions, observed) < 1 or noise**2 <= SMALLEST_NOISE:
            raise ValueError(
                f"{type(self).__name__} cannot have dimensions {dimensions}, observed {observed} and noise {noise}: the"
                f" first two must be at least 1, and noise must be more than {math.sqrt(SMALLEST_NOISE):g}."
            )
        self.dimensions, self.observed, self.counts = dimensions, observed, counts
        if not counts:
            learned = noise**2 - SMALLEST_NOISE
            raw = learned + math.log(-math.expm1(-learned))
            self.raw_noise = nn.Parameter(torch.full((observed,), raw))

    @property
    def variance(self) -> Tensor:
        """Variances `[Dy]` of normal observations."""
        return F.softplus(self.raw_noise) + SMALLEST_NOISE

    @property
    def bias(self) -> Tensor | None:
        """What is added last to `natural`, `[Dy]`; None if that is not learned."""
        return None

    def natural(self, latent: Tensor) -> Tensor:
        """The mean, or the logarithm of the rate, `[..., Dy]`."""
        raise NotImplementedError

    def slope(self, latent: Tensor) -> Tensor:
        """Derivative of `natural`, `[..., Dy, D]`."""
        each = vmap(jacfwd(self.natural))(latent.reshape(-1, self.dimensions))
        return each.view(*latent.shape[:-1], self.observed, self.dimensions)

    def forward(self, latent: Tensor) -> Tensor:
        """The observation that is to be expected, `[..., Dy]`."""
        natural = self.natural(latent)
        return natural.clamp(max=LARGEST_LOG_RATE).exp() if self.counts else natural

    def log_likelihood(self, latent: Tensor, obs: Tensor) -> Tensor:
        """Logarithm of p(obs | latent) in nats, `[...]`, the sum over Dy.

        Counts: y log rate - rate - log y!
        """
        natural = self.natural(latent)
        if not self.counts:
            return log_density(obs, natural, self.variance).sum(-1)
        log_rate = natural.clamp(max=LARGEST_LOG_RATE)
        return (obs * log_rate - log_rate.exp() - torch.lgamma(obs + 1)).sum(-1)

    def sensitivity(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """How what is expected changes with the state, `[..., Dy, D]`; the variances of an observation, `[..., Dy]`.

        A rate that is as large as it can be no longer changes.
        """
        slope, natural = self.slope(latent), self.natural(latent)
        if not self.counts:
            return slope, self.variance.expand_as(natural)
        rate = natural.clamp(max=LARGEST_LOG_RATE).exp()
        change = torch.where(natural < LARGEST_LOG_RATE, rate, 0.0)
        return slope * change.unsqueeze(-1), rate.clamp(min=SMALLEST_RATE)

    @torch.no_grad()
    def start_(self, obs: Tensor) -> None:
        """Let the state zero show the mean of observations `[..., Dy]`: what is far away takes long to be learned.

        Raises: ValueError for counts below zero.
        """
        if self.counts and obs.min() < 0:
            raise ValueError(f"{type(self).__name__}: counts is true, but {obs.min():g} was observed; set it to false.")
        if self.bias is None:
            return
        mean = obs.flatten(0, -2).mean(0)
        shown = mean.clamp(min=SMALLEST_COUNT).log() if self.counts else mean
        self.bias.add_(shown - self.natural(obs.new_zeros(self.dimensions)))


class IdentityDecoder(Decoder):
    """The state itself, with noise.

    Args:
        dimensions: D, of the latent state and of observations.
        noise: standard deviation of the observations at first; every dimension learns its own.
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
        observed: Dy, of an observation.
        dimensions: D, of the latent state.
        counts: Poisson counts instead of normal observations; their rate is log-linear.
        noise: standard deviation of normal observations at first; every dimension learns its own.
        weight: C, `Dy` rows of `D` numbers, if it is known; it stays as it is then, and b as well, because a b that
            moved would move the state's origin.
        bias: b, if it is known with C; null is zero then.

    Raises: ValueError for a weight or a bias of another shape, or a bias alone.
    """

    def __init__(
        self,
        observed: int,
        dimensions: int = 2,
        counts: bool = False,
        noise: float = 0.2,
        weight: Sequence[Sequence[float]] | None = None,
        bias: Sequence[float] | None = None,
    ):
        super().__init__(dimensions, observed, counts, noise)
        self.linear = nn.Linear(dimensions, observed)
        nn.init.normal_(self.linear.weight, std=FIRST_WEIGHT / math.sqrt(dimensions))
        nn.init.zeros_(self.linear.bias)
        if weight is not None:
            self._know(weight, [0.0] * observed if bias is None else bias)
        elif bias is not None:
            raise ValueError("LinearDecoder: bias is known but weight is not; give both, or neither.")

    @property
    def bias(self) -> Tensor | None:
        """b, unless it is known."""
        return self.linear.bias if self.linear.bias.requires_grad else None

    def natural(self, latent: Tensor) -> Tensor:
        """C z + b."""
        return self.linear(latent)

    def slope(self, latent: Tensor) -> Tensor:
        """C."""
        return self.linear.weight.expand(*latent.shape[:-1], self.observed, self.dimensions)

    @torch.no_grad()
    def _know(self, weight: Sequence[Sequence[float]], bias: Sequence[float]) -> None:
        observed, dimensions = self.observed, self.dimensions
        if len(weight) != observed or any(len(row) != dimensions for row in weight) or len(bias) != observed:
            raise ValueError(
                f"LinearDecoder: weight must be {observed} rows of {dimensions} numbers, and bias {observed} numbers."
            )
        self.linear.weight.copy_(torch.tensor(weight))
        self.linear.bias.copy_(torch.tensor(bias))
        self.linear.requires_grad_(False)


class MLPDecoder(Decoder):
    """Layers with SiLU units.

    Args:
        observed: Dy, of an observation.
        dimensions: D, of the latent state.
        hidden: widths of the layers; none leaves a linear decoder.
        counts: Poisson counts instead of normal observations.
        noise: standard deviation of normal observations at first; every dimension learns its own.
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
        widths = (dimensions, *hidden)
        self.body, self.linear = nn.Sequential(*silu_layers(widths)), nn.Linear(widths[-1], observed)

    @property
    def bias(self) -> Tensor | None:
        """The last layer's."""
        return self.linear.bias

    def natural(self, latent: Tensor) -> Tensor:
        """The last layer."""
        return self.linear(self.body(latent))
