"""Decoders of latent states: normal observations, or Poisson counts by the logarithm of their rate.

Shapes: latent states `[..., D]`, observations `[..., Dy]`, any leading dimensions.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import jacfwd, vmap
from torch.nn import functional as F

from modules.functional.dynamics.gaussian import inverse_softplus, log_density
from modules.functional.dynamics.linear_gaussian import LinearGaussian
from modules.networks.base import silu_layers

SMALLEST_NOISE = 1e-4
"""Lower bound of a normal observation's variance."""

LARGEST_LOG_RATE = 8.0
"""Upper bound of a count's log rate, against overflow of a diverged network."""

SMALLEST_RATE = 1e-8
"""Lower bound of a count's variance, since information divides by it."""

FIRST_WEIGHT = 0.1
"""Standard deviation of a linear decoder's initial weights, times sqrt(D): encoders then identify the whole state."""

SMALLEST_COUNT = 1e-3
"""Initial mean count of a decoder where no events were counted."""


class Decoder(nn.Module):
    """Base of decoders; to add one, implement `natural_parameter`, and `bias` if it has one.

    Args:
        dimensions: D, number of dimensions of the latent state.
        observed: Dy, number of elements of an observation.
        counts: Poisson counts per step, `natural_parameter` being the log rate; else normal observations and their
            mean.
        noise: initial standard deviation of normal observations, learned per dimension.

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
            raw = inverse_softplus(torch.tensor(noise**2 - SMALLEST_NOISE, dtype=torch.float64))
            self.raw_noise = nn.Parameter(torch.full((observed,), float(raw)))

    @property
    def variance(self) -> Tensor:
        """Return the variances `[Dy]` of normal observations."""
        return F.softplus(self.raw_noise) + SMALLEST_NOISE

    @property
    def bias(self) -> Tensor | None:
        """Return the learned bias of `natural_parameter`, `[Dy]`; None if there is none."""
        return None

    def natural_parameter(self, latent: Tensor) -> Tensor:
        """Return the mean, or the log rate, `[..., Dy]`."""
        raise NotImplementedError

    def slope(self, latent: Tensor) -> Tensor:
        """Return the derivative of `natural_parameter`, `[..., Dy, D]`."""
        each = vmap(jacfwd(self.natural_parameter))(latent.reshape(-1, self.dimensions))
        return each.view(*latent.shape[:-1], self.observed, self.dimensions)

    def forward(self, latent: Tensor) -> Tensor:
        """Return the expected observation, `[..., Dy]`."""
        natural = self.natural_parameter(latent)
        return natural.clamp(max=LARGEST_LOG_RATE).exp() if self.counts else natural

    def log_likelihood(self, latent: Tensor, obs: Tensor) -> Tensor:
        """Return log p(obs | latent) in nats, `[...]`, summed over Dy.

        Counts: y log rate - rate - log y!
        """
        natural = self.natural_parameter(latent)
        if not self.counts:
            return log_density(obs, natural, self.variance).sum(-1)
        log_rate = natural.clamp(max=LARGEST_LOG_RATE)
        return (obs * log_rate - log_rate.exp() - torch.lgamma(obs + 1)).sum(-1)

    def sensitivity(self, latent: Tensor) -> tuple[Tensor, Tensor]:
        """Return the derivative of the expected observation `[..., Dy, D]` and the observation's variances `[..., Dy]`.

        The derivative is 0 where the rate is at its upper bound.
        """
        slope, natural = self.slope(latent), self.natural_parameter(latent)
        if not self.counts:
            return slope, self.variance.expand_as(natural)
        rate = natural.clamp(max=LARGEST_LOG_RATE).exp()
        change = torch.where(natural < LARGEST_LOG_RATE, rate, 0.0)
        return slope * change.unsqueeze(-1), rate.clamp(min=SMALLEST_RATE)

    @torch.no_grad()
    def init_bias_(self, obs: Tensor) -> None:
        """Set the bias so that the zero state decodes to the mean of observations `[..., Dy]`; this speeds up learning.

        Raises: ValueError for negative counts.
        """
        if self.counts and obs.min() < 0:
            raise ValueError(f"{type(self).__name__}: counts is true, but {obs.min():g} was observed; set it to false.")
        if self.bias is None:
            return
        mean = obs.flatten(0, -2).mean(0)
        shown = mean.clamp(min=SMALLEST_COUNT).log() if self.counts else mean
        self.bias.add_(shown - self.natural_parameter(obs.new_zeros(self.dimensions)))


class IdentityDecoder(Decoder):
    """Observation equal to the state plus noise.

    Args:
        dimensions: D, of the latent state and of observations.
        noise: initial standard deviation of the observations, learned per dimension.
    """

    def __init__(self, dimensions: int = 2, noise: float = 0.2):
        super().__init__(dimensions, dimensions, False, noise)

    def natural_parameter(self, latent: Tensor) -> Tensor:
        """Return the state."""
        return latent

    def slope(self, latent: Tensor) -> Tensor:
        """Return the identity."""
        eye = torch.eye(self.dimensions, dtype=latent.dtype, device=latent.device)
        return eye.expand(*latent.shape, self.dimensions)


class LinearDecoder(Decoder):
    """Linear decoder C z + b.

    Args:
        observed: Dy, number of elements of an observation.
        dimensions: D, number of dimensions of the latent state.
        counts: Poisson counts instead of normal observations; their rate is log-linear.
        noise: initial standard deviation of normal observations, learned per dimension.
        weight: C, `Dy` rows of `D` numbers, if known; C and b are then constant, since a learned b would shift the
            state's origin.
        bias: b, if known together with C; null is zero then.

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
        """Return b, or None if it is known."""
        return self.linear.bias if self.linear.bias.requires_grad else None

    def natural_parameter(self, latent: Tensor) -> Tensor:
        """Return C z + b."""
        return self.linear(latent)

    def slope(self, latent: Tensor) -> Tensor:
        """Return C."""
        return self.linear.weight.expand(*latent.shape[:-1], self.observed, self.dimensions)

    @torch.no_grad()
    def init_linear_(self, model: LinearGaussian) -> None:
        """Set weight, bias and the noise of every element.

        Raises: ValueError for counts.
        """
        if self.counts:
            raise ValueError("A linear initialisation needs normal observations: set the decoder's counts to false.")
        self.linear.weight.copy_(model.weight)
        self.linear.bias.copy_(model.mean)
        self.raw_noise.copy_(inverse_softplus(model.variance - SMALLEST_NOISE).expand(self.observed))

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
    """MLP decoder with SiLU units.

    Args:
        observed: Dy, number of elements of an observation.
        dimensions: D, number of dimensions of the latent state.
        hidden: widths of the layers; an empty list leaves a linear decoder.
        counts: Poisson counts instead of normal observations.
        noise: initial standard deviation of normal observations, learned per dimension.
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
        """Return the bias of the last layer."""
        return self.linear.bias

    def natural_parameter(self, latent: Tensor) -> Tensor:
        """Return the output of the last layer."""
        return self.linear(self.body(latent))
