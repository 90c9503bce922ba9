"""Tanh-squashed Gaussian policy over a box."""

import math

import torch
from torch import Tensor, nn

from modules.functional.soft_actor_critic import reparametrised_log_prob
from modules.networks.base import at_least_float32, orthogonal

LOG_STD_LOW, LOG_STD_HIGH = -5.0, 2.0
"""Bounds of the log standard deviation before tanh."""


class SquashedGaussian:
    """Tanh-squashed normal: actions `[..., dims]` in (-1, 1) are tanh(u), u ~ N(mean, exp(log_std)^2), `[..., dims]`.

    Log-probabilities are densities of actions in (-1, 1). In the environment's units they are lower by the sum of the
    logarithms of the ranges' half-widths.
    """

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std

    @property
    def mode(self) -> Tensor:
        """Return tanh(mean): the median of every dimension, used as the greedy action."""
        return self.mean.tanh()

    def sample(self, noise: Tensor) -> Tensor:
        """Return a sampled action, from standard normal noise `[..., dims]`."""
        return torch.addcmul(self.mean, self.log_std.exp(), noise).tanh()

    def sample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return a reparametrised action, with gradient, and its log-density `[...]`."""
        pre_tanh = torch.addcmul(self.mean, self.log_std.exp(), noise)
        return pre_tanh.tanh(), reparametrised_log_prob(pre_tanh, noise, self.log_std)

    def uniform(self, noise: Tensor) -> Tensor:
        """Return an action drawn uniformly from the box, independent of the policy, from the same noise as `sample`."""
        return torch.erf(noise * math.sqrt(0.5))


class SquashedGaussianHead(nn.Module):
    """Linear layer to means and log standard deviations, of one policy or of K.

    log_std = low + (high - low) (tanh(x) + 1) / 2, bounded with non-zero gradient. The initial policy has mean 0 and
    standard deviation 1, which is nearly uniform over the box.

    Args:
        features: number of input features.
        dims: number of action dimensions.
        options: K policies in parallel, which adds a dimension `[..., K, dims]`; None has no such dimension. One option
            has the weights of None.
    """

    def __init__(self, features: int, dims: int, options: int | None = None) -> None:
        super().__init__()
        self.dims, self.options = dims, options
        self.linear = orthogonal(nn.Linear(features, (options or 1) * 2 * dims), 0.01)
        middle = math.atanh((0.0 - LOG_STD_LOW) / (LOG_STD_HIGH - LOG_STD_LOW) * 2.0 - 1.0)
        with torch.no_grad():
            self.linear.bias.view(-1, 2, dims)[:, 1] = middle

    def forward(self, features: Tensor) -> SquashedGaussian:
        """Return the distribution over actions, float32 also under autocast."""
        output = at_least_float32(self.linear(features))
        if self.options is not None:
            output = output.unflatten(-1, (self.options, -1))
        mean, spread = output.chunk(2, -1)
        return SquashedGaussian(mean, torch.tanh(spread) * (0.5 * (LOG_STD_HIGH - LOG_STD_LOW)) + self._centre)

    @property
    def _centre(self) -> float:
        return 0.5 * (LOG_STD_HIGH + LOG_STD_LOW)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw standard normal noise `[*shape, dims]`, or `[*shape, K, dims]`, on the generator's device."""
        options = () if self.options is None else (self.options,)
        return torch.randn((*shape, *options, self.dims), generator=generator, device=generator.device)
