"""Policy heads and the value head.

A policy head maps features to a distribution over actions (see `distributions`). Random numbers are drawn by the head's
`noise`, outside compiled code, and passed to the distribution's `sample`; eager, compiled and captured runs then sample
the same actions.

Masked actions get the logit -1e8: finite, so that entropies and gradients are finite, and below any noise.
To add a kind of action: a distribution, a head, and a line in `policy_head`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from modules.functional.sampling import MASKED_LOGIT, gumbel
from modules.networks.base import linear_fp32, orthogonal
from modules.networks.distributions import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Distribution,
    Hybrid,
    MultiCategorical,
)


class PolicyHead(nn.Module):
    """Linear layer, orthogonal with gain 0.01 so that the initial policy is nearly uniform (or has mean 0).

    Called with features `[..., features]` and a mask `[..., sum(action_sizes)]` (True = allowed; None allows all), a
    head returns a distribution.
    """

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = orthogonal(nn.Linear(features, outputs), 0.01)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Any:
        """Return the distribution over actions."""
        return self.distribution(self.masked(linear_fp32(self.linear, features), mask))

    def masked(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        """Return parameters that give masked actions probability 0."""
        return parameters if mask is None else parameters.masked_fill(~mask, MASKED_LOGIT)

    def distribution(self, parameters: Tensor) -> Distribution:
        """Return the distribution with the given `Distribution.parameters`."""
        raise NotImplementedError

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the randomness of one `sample` per index of `shape`, float32 on the generator's device."""
        return gumbel((*shape, self.linear.out_features), generator)


class CategoricalHead(PolicyHead):
    """Head of a discrete action with `actions` choices; mask `[..., actions]`."""

    def distribution(self, parameters: Tensor) -> Categorical:
        """Return the categorical distribution with logits `[..., actions]`."""
        return Categorical(parameters)


class MultiCategoricalHead(PolicyHead):
    """Head of a multi-discrete action, `sizes[i]` choices in part i; logits and masks of the parts are concatenated."""

    def __init__(self, features: int, sizes: Sequence[int]) -> None:
        super().__init__(features, sum(sizes))
        self.sizes = list(sizes)

    def distribution(self, parameters: Tensor) -> MultiCategorical:
        """Return the multi-categorical distribution with logits `[..., sum(sizes)]`."""
        return MultiCategorical(parameters, self.sizes)


class BernoulliHead(PolicyHead):
    """Head of a binary action with `parts` bits; mask `[..., 2 parts]`: whether bit 0 may be 0, may be 1, and so on."""

    def masked(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        """Return logits `[..., parts]` that give masked values probability 0."""
        if mask is None:
            return parameters
        no, yes = mask.unflatten(-1, (-1, 2)).unbind(-1)
        return parameters.masked_fill(~no, -MASKED_LOGIT).masked_fill(~yes, MASKED_LOGIT)

    def distribution(self, parameters: Tensor) -> Bernoulli:
        """Return the Bernoulli distribution with logits `[..., parts]`."""
        return Bernoulli(parameters)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw standard logistic noise `[*shape, parts]`, the difference of two Gumbel draws and so always finite."""
        first, second = gumbel((2, *shape, self.linear.out_features), generator)
        return first - second


class DiagonalGaussianHead(PolicyHead):
    """Head of a continuous action of `dims` dimensions; `log_std` `[dims]` is a separate parameter, 0 at first."""

    def __init__(self, features: int, dims: int) -> None:
        super().__init__(features, dims)
        self.log_std = nn.Parameter(torch.zeros(dims))

    def masked(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        """Return the means unchanged.

        Raises:
            ValueError: If there is a mask: a continuous action has no choices to mask.
        """
        if mask is not None:
            raise ValueError("A continuous action cannot be masked; remove the environment's action_mask.")
        return parameters

    def distribution(self, parameters: Tensor) -> DiagonalGaussian:
        """Return the normal distribution with means `[..., dims]` and the current standard deviation."""
        return DiagonalGaussian(parameters, self.log_std.to(parameters.dtype))

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw standard normal noise `[*shape, dims]`."""
        return torch.randn((*shape, self.linear.out_features), generator=generator, device=generator.device)


class HybridHead(PolicyHead):
    """Head of a hybrid action: choices of `sizes[i]`, then `dims` continuous parts; mask `[..., sum(sizes)]`.

    `log_std` `[dims]` is a separate parameter, 0 at first.
    """

    def __init__(self, features: int, sizes: Sequence[int], dims: int) -> None:
        super().__init__(features, sum(sizes) + dims)
        self.sizes, self.choices = list(sizes), sum(sizes)
        self.log_std = nn.Parameter(torch.zeros(dims))

    def masked(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        """Return parameters that give masked choices probability 0."""
        if mask is None:
            return parameters
        return torch.cat([super().masked(parameters[..., : self.choices], mask), parameters[..., self.choices :]], -1)

    def distribution(self, parameters: Tensor) -> Hybrid:
        """Return the distribution with logits and means `[..., sum(sizes) + dims]`."""
        return Hybrid(parameters, self.sizes, self.log_std.to(parameters.dtype))

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw Gumbel noise for the choices and normal noise for the others, `[*shape, sum(sizes) + dims]`."""
        normal = torch.randn((*shape, len(self.log_std)), generator=generator, device=generator.device)
        return torch.cat([gumbel((*shape, self.choices), generator), normal], -1)


class ValueHead(nn.Module):
    """Linear head of the state value, `[...]` from features `[..., features]`; orthogonal with gain 1."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = orthogonal(nn.Linear(features, 1), 1.0)

    def forward(self, features: Tensor) -> Tensor:
        """Return values `[...]`, float32 also under autocast."""
        return linear_fp32(self.linear, features).squeeze(-1)


def policy_head(features: int, action_type: str, action_sizes: Sequence[int], action_dims: int) -> PolicyHead:
    """Create the policy head of an action space.

    Args:
        features: number of input features.
        action_type: `discrete`, `multidiscrete`, `binary`, `continuous` or `hybrid`.
        action_sizes: number of choices of each part (2 for each binary part); unused when continuous.
        action_dims: number of continuous dimensions; unused otherwise.

    Raises:
        ValueError: If `action_type` is unknown.
    """
    match action_type:
        case "discrete":
            return CategoricalHead(features, action_sizes[0])
        case "multidiscrete":
            return MultiCategoricalHead(features, action_sizes)
        case "binary":
            return BernoulliHead(features, len(action_sizes))
        case "continuous":
            return DiagonalGaussianHead(features, action_dims)
        case "hybrid":
            return HybridHead(features, action_sizes, action_dims)
    raise ValueError(f"action_type is {action_type!r}; use discrete, multidiscrete, binary, continuous or hybrid.")
