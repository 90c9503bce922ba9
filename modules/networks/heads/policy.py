"""Policies and values from features.

A policy head turns features into a distribution over actions (see `distributions`). Randomness is drawn by the head's
`noise`, outside compiled code, and passed to the distribution's `sample`; eager, compiled and captured runs then choose
the same actions.

Masked choices get the logit -1e8: finite, so that entropies and gradients are finite, and out of reach of any noise.
To add a kind of action: a distribution, a head, and a line in `policy_head`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from modules.functional.sampling import MASKED, gumbel
from modules.networks.base import exactly, orthogonal
from modules.networks.distributions import Bernoulli, Categorical, DiagonalGaussian, Distribution, MultiCategorical


class PolicyHead(nn.Module):
    """One linear layer, orthogonal with gain 0.01 so that the first policy is nearly uniform (or has mean 0).

    Called with features `[..., features]` and a mask `[..., sum(action_sizes)]` (True = allowed; None allows all), a
    head returns its distribution.
    """

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = orthogonal(nn.Linear(features, outputs), 0.01)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Any:
        """The distribution over actions."""
        return self.distribution(self.masked(exactly(self.linear, features), mask))

    def masked(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        """Parameters that leave no chance to what the mask forbids."""
        return parameters if mask is None else parameters.masked_fill(~mask, MASKED)

    def distribution(self, parameters: Tensor) -> Distribution:
        """The distribution of `Distribution.parameters`."""
        raise NotImplementedError

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Randomness for one `sample` at each index of `shape`, float32 on the generator's device."""
        return gumbel((*shape, self.linear.out_features), generator)


class CategoricalHead(PolicyHead):
    """A choice among `actions`; mask `[..., actions]`."""

    def distribution(self, parameters: Tensor) -> Categorical:
        """The distribution over choices of logits `[..., actions]`."""
        return Categorical(parameters)


class MultiCategoricalHead(PolicyHead):
    """One choice a part, `sizes[i]` of them in part i; logits and masks of the parts stand one after the other."""

    def __init__(self, features: int, sizes: Sequence[int]) -> None:
        super().__init__(features, sum(sizes))
        self.sizes = list(sizes)

    def distribution(self, parameters: Tensor) -> MultiCategorical:
        """The distribution over choices of logits `[..., sum(sizes)]`."""
        return MultiCategorical(parameters, self.sizes)


class BernoulliHead(PolicyHead):
    """A yes or no for each of `parts`; mask `[..., 2 parts]`: whether part 0 may be 0, may be 1, and so on."""

    def masked(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        """Logits `[..., parts]` that leave no chance to what the mask forbids."""
        if mask is None:
            return parameters
        no, yes = mask.unflatten(-1, (-1, 2)).unbind(-1)
        return parameters.masked_fill(~no, -MASKED).masked_fill(~yes, MASKED)

    def distribution(self, parameters: Tensor) -> Bernoulli:
        """The distribution over zeros and ones of logits `[..., parts]`."""
        return Bernoulli(parameters)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Standard logistic noise `[*shape, parts]`: the difference of two Gumbel draws, which is always finite."""
        first, second = gumbel((2, *shape, self.linear.out_features), generator)
        return first - second


class DiagonalGaussianHead(PolicyHead):
    """A continuous action of `dims` parts; `log_std` `[dims]` is a parameter of its own and starts at 0."""

    def __init__(self, features: int, dims: int) -> None:
        super().__init__(features, dims)
        self.log_std = nn.Parameter(torch.zeros(dims))

    def masked(self, parameters: Tensor, mask: Tensor | None) -> Tensor:
        """The means as they are.

        Raises:
            ValueError: If there is a mask: a continuous action has no choices to forbid.
        """
        if mask is not None:
            raise ValueError("A continuous action cannot be masked; remove the environment's action_mask.")
        return parameters

    def distribution(self, parameters: Tensor) -> DiagonalGaussian:
        """The distribution of means `[..., dims]`, with the deviation as it is now."""
        return DiagonalGaussian(parameters, self.log_std.to(parameters.dtype))

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Standard normal noise `[*shape, dims]`."""
        return torch.randn((*shape, self.linear.out_features), generator=generator, device=generator.device)


class ValueHead(nn.Module):
    """The value of a state, `[...]` from features `[..., features]`: one linear layer, orthogonal with gain 1."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear = orthogonal(nn.Linear(features, 1), 1.0)

    def forward(self, features: Tensor) -> Tensor:
        """Values `[...]`, float32 also under autocast."""
        return exactly(self.linear, features).squeeze(-1)


def policy_head(features: int, action_kind: str, action_sizes: Sequence[int], action_dims: int) -> PolicyHead:
    """The policy head that suits an action space; the one table from kind to class.

    Args:
        features: what the network returns.
        action_kind: `discrete`, `multidiscrete`, `binary` or `continuous`.
        action_sizes: number of choices of each part (2 for each binary part); unused when continuous.
        action_dims: number of continuous parts; unused otherwise.

    Raises:
        ValueError: If the kind is unknown.
    """
    match action_kind:
        case "discrete":
            return CategoricalHead(features, action_sizes[0])
        case "multidiscrete":
            return MultiCategoricalHead(features, action_sizes)
        case "binary":
            return BernoulliHead(features, len(action_sizes))
        case "continuous":
            return DiagonalGaussianHead(features, action_dims)
    raise ValueError(f"action_kind is {action_kind!r}; use discrete, multidiscrete, binary or continuous.")
