"""A policy over a box: a normal distribution that depends on the state, squashed by tanh."""

import math

import torch
from torch import Tensor, nn

from modules.functional.soft_actor_critic import reparametrised_log_prob
from modules.networks.base import at_least_float32, orthogonal

LOG_STD_LOW, LOG_STD_HIGH = -5.0, 2.0
"""Between these lies the log standard deviation before squashing."""


class SquashedGaussian:
    """Actions `[..., dims]` in (-1, 1): tanh(u), u normal with `mean` and `log_std` `[..., dims]`.

    Log-probabilities are densities of these actions, not of those in the environment's units, which are lower by the
    sum of the logarithms of the ranges' half-widths.
    """

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std

    @property
    def mode(self) -> Tensor:
        """The squashed mean: the median of every dimension, and what greedy play does."""
        return self.mean.tanh()

    def sample(self, noise: Tensor) -> Tensor:
        """An action, from standard normal noise `[..., dims]`."""
        return torch.addcmul(self.mean, self.log_std.exp(), noise).tanh()

    def sample_with_log_prob(self, noise: Tensor) -> tuple[Tensor, Tensor]:
        """An action through which gradients flow, and its log-density `[...]`."""
        pre_tanh = torch.addcmul(self.mean, self.log_std.exp(), noise)
        return pre_tanh.tanh(), reparametrised_log_prob(pre_tanh, noise, self.log_std)

    def uniform(self, noise: Tensor) -> Tensor:
        """An action drawn evenly from the box, whatever the policy, from the same noise as `sample`."""
        return torch.erf(noise * math.sqrt(0.5))


class SquashedGaussianHead(nn.Module):
    """One linear layer to means and log standard deviations, of one policy or of several.

    log_std = low + (high - low) (tanh(x) + 1) / 2, bounded but never flat. The first policy has mean 0 and standard
    deviation 1, which is nearly even over the box.

    Args:
        features: what the network returns.
        dims: of an action.
        options: number K of policies side by side, a dimension `[..., K, dims]` of the result; None has no such
            dimension. One option has the weights of None.
    """

    def __init__(self, features: int, dims: int, options: int | None = None) -> None:
        super().__init__()
        self.dims, self.options = dims, options
        self.linear = orthogonal(nn.Linear(features, (options or 1) * 2 * dims), 0.01)
        middle = math.atanh((0.0 - LOG_STD_LOW) / (LOG_STD_HIGH - LOG_STD_LOW) * 2.0 - 1.0)
        with torch.no_grad():
            self.linear.bias.view(-1, 2, dims)[:, 1] = middle

    def forward(self, features: Tensor) -> SquashedGaussian:
        """The distribution over actions, float32 also under autocast."""
        output = at_least_float32(self.linear(features))
        if self.options is not None:
            output = output.unflatten(-1, (self.options, -1))
        mean, spread = output.chunk(2, -1)
        return SquashedGaussian(mean, torch.tanh(spread) * (0.5 * (LOG_STD_HIGH - LOG_STD_LOW)) + self._centre)

    @property
    def _centre(self) -> float:
        return 0.5 * (LOG_STD_HIGH + LOG_STD_LOW)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Standard normal noise `[*shape, dims]`, or `[*shape, K, dims]`, on the generator's device."""
        options = () if self.options is None else (self.options,)
        return torch.randn((*shape, *options, self.dims), generator=generator, device=generator.device)
