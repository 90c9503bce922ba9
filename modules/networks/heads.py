"""Policies and values from features.

A policy head turns features into a distribution over actions: a light object whose results are float32 (or float64 in
a float64 module), also under autocast. Randomness is drawn by the head's `noise`, outside compiled code, and passed to
the distribution's `sample`; eager, compiled and captured runs then choose the same actions.

Masked choices get the logit -1e8: finite, so that entropies and gradients are finite, and out of reach of any noise.
To add a kind of action: a distribution, a head, and a line in `policy_head`.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from modules.networks.base import orthogonal

MASKED = -1e8
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


class Distribution(Protocol):
    """What a policy head returns: one distribution for each leading index `[...]`."""

    @property
    def mode(self) -> Tensor:
        """The most likely action, `[...]` or `[..., parts]`."""
        ...

    def sample(self, noise: Tensor) -> Tensor:
        """An action, from one draw of the head's `noise`."""
        ...

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability or log-density `[...]` of an action, in nats, summed over its parts."""
        ...

    def entropy(self) -> Tensor:
        """Entropy `[...]` in nats, summed over the parts."""
        ...


class Categorical:
    """One choice among `actions`, from logits `[..., actions]`; an action is int64 `[...]` from 0."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits
        self._log_probs: Tensor | None = None

    @property
    def log_probs(self) -> Tensor:
        """Normalised logits `[..., actions]`, computed once."""
        if self._log_probs is None:
            self._log_probs = _log_softmax(self.logits)
        return self._log_probs

    @property
    def mode(self) -> Tensor:
        """The choice with the largest logit, `[...]`; the first of several."""
        return self.logits.argmax(-1)

    def sample(self, noise: Tensor) -> Tensor:
        """A choice `[...]`: the Gumbel-max trick, with standard Gumbel noise `[..., actions]`."""
        return (self.logits + noise).argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability `[...]` of choices `[...]`."""
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """-sum p log p, `[...]`."""
        return -(self.log_probs.exp() * self.log_probs).sum(-1)


class MultiCategorical:
    """Independent choices, one a part, from logits `[..., sum(sizes)]`; an action is int64 `[..., parts]` from 0."""

    def __init__(self, logits: Tensor, sizes: Sequence[int]) -> None:
        self.sizes = list(sizes)
        self.parts = [Categorical(part) for part in logits.split(self.sizes, -1)]

    @property
    def mode(self) -> Tensor:
        """The choice with the largest logit in every part, `[..., parts]`."""
        return torch.stack([part.mode for part in self.parts], -1)

    def sample(self, noise: Tensor) -> Tensor:
        """A choice in every part, from Gumbel noise `[..., sum(sizes)]`."""
        draws = noise.split(self.sizes, -1)
        return torch.stack([part.sample(draw) for part, draw in zip(self.parts, draws, strict=True)], -1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability `[...]` of choices `[..., parts]`."""
        choices = zip(self.parts, action.unbind(-1), strict=True)
        return torch.stack([part.log_prob(choice) for part, choice in choices]).sum(0)

    def entropy(self) -> Tensor:
        """Sum of the parts' entropies, `[...]`."""
        return torch.stack([part.entropy() for part in self.parts]).sum(0)


class Bernoulli:
    """Independent yes-or-no parts from logits `[..., parts]`; an action is `[..., parts]` zeros and ones."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = logits

    @property
    def mode(self) -> Tensor:
        """1 where it is the more likely, `[..., parts]`."""
        return (self.logits > 0).long()

    def sample(self, noise: Tensor) -> Tensor:
        """Zeros and ones, from standard logistic noise `[..., parts]`."""
        return (self.logits + noise > 0).long()

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-probability `[...]` of zeros and ones `[..., parts]`, of any dtype."""
        return (action * self.logits - F.softplus(self.logits)).sum(-1)

    def entropy(self) -> Tensor:
        """Sum of the parts' entropies, `[...]`."""
        return (F.softplus(self.logits) - self.logits * self.logits.sigmoid()).sum(-1)


class DiagonalGaussian:
    """Independent normal parts from means `[..., dims]` and log standard deviations `[dims]`; actions are unclipped."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = mean
        self.log_std = log_std

    @property
    def mode(self) -> Tensor:
        """The mean, `[..., dims]`."""
        return self.mean

    def sample(self, noise: Tensor) -> Tensor:
        """The mean plus std times noise, `[..., dims]`, from standard normal noise of that shape."""
        return torch.addcmul(self.mean, self.log_std.exp(), noise)

    def log_prob(self, action: Tensor) -> Tensor:
        """Log-density `[...]` of actions `[..., dims]`."""
        deviation = (action - self.mean) * (-self.log_std).exp()
        return (-0.5 * deviation.square() - self.log_std - _LOG_SQRT_2PI).sum(-1)

    def entropy(self) -> Tensor:
        """Differential entropy `[...]`: the same for every row, since the deviation does not depend on the state."""
        return (self.log_std + (0.5 + _LOG_SQRT_2PI)).sum().expand(self.mean.shape[:-1])


class PolicyHead(nn.Module):
    """One linear layer, orthogonal with gain 0.01 so that the first policy is nearly uniform (or has mean 0).

    Called with features `[..., features]` and a mask `[..., sum(action_sizes)]` (True = allowed; None allows all), a
    head returns its distribution.
    """

    def __init__(self, features: int, outputs: int) -> None:
        super().__init__()
        self.linear = orthogonal(nn.Linear(features, outputs), 0.01)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Distribution:
        """The distribution over actions."""
        raise NotImplementedError

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Randomness for one `sample` at each index of `shape`, float32 on the generator's device."""
        return _gumbel((*shape, self.linear.out_features), generator)


class CategoricalHead(PolicyHead):
    """A choice among `actions`."""

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Categorical:
        """The distribution over choices; mask `[..., actions]`."""
        return Categorical(_masked(_linear(self.linear, features), mask))


class MultiCategoricalHead(PolicyHead):
    """One choice a part, `sizes[i]` of them in part i; a single linear layer makes the logits of all parts."""

    def __init__(self, features: int, sizes: Sequence[int]) -> None:
        super().__init__(features, sum(sizes))
        self.sizes = list(sizes)

    def forward(self, features: Tensor, mask: Tensor | None = None) -> MultiCategorical:
        """The distribution over choices; mask `[..., sum(sizes)]`, the parts' masks one after the other."""
        return MultiCategorical(_masked(_linear(self.linear, features), mask), self.sizes)


class BernoulliHead(PolicyHead):
    """A yes or no for each of `parts`."""

    def forward(self, features: Tensor, mask: Tensor | None = None) -> Bernoulli:
        """The distribution over zeros and ones; mask `[..., 2 parts]`: whether part 0 may be 0, may be 1, and so on."""
        logits = _linear(self.linear, features)
        if mask is not None:
            no, yes = mask.unflatten(-1, (-1, 2)).unbind(-1)
            logits = logits.masked_fill(~no, -MASKED).masked_fill(~yes, MASKED)
        return Bernoulli(logits)

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Standard logistic noise `[*shape, parts]`: the difference of two Gumbel draws, which is always finite."""
        first, second = _gumbel((2, *shape, self.linear.out_features), generator)
        return first - second


class DiagonalGaussianHead(PolicyHead):
    """A continuous action of `dims` parts; `log_std` `[dims]` is a parameter of its own and starts at 0."""

    def __init__(self, features: int, dims: int) -> None:
        super().__init__(features, dims)
        self.log_std = nn.Parameter(torch.zeros(dims))

    def forward(self, features: Tensor, mask: Tensor | None = None) -> DiagonalGaussian:
        """The distribution over actions.

        Raises:
            ValueError: If there is a mask: a continuous action has no choices to forbid.
        """
        if mask is not None:
            raise ValueError("A continuous action cannot be masked; remove the environment's action_mask.")
        mean = _linear(self.linear, features)
        return DiagonalGaussian(mean, self.log_std.to(mean.dtype))

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
        return _linear(self.linear, features).squeeze(-1)


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


def _linear(layer: nn.Linear, features: Tensor) -> Tensor:
    """The layer at the precision of its weights, not of autocast, and in float32 at least."""
    features = features.to(layer.weight.dtype)
    if torch.is_autocast_enabled(features.device.type):
        with torch.autocast(features.device.type, enabled=False):
            output = layer(features)
    else:
        output = layer(features)
    return output.float() if output.dtype.itemsize < 4 else output


def _log_softmax(logits: Tensor) -> Tensor:
    """Over the last dimension; for many rows of few choices by way of the first, which a CPU does four times faster."""
    if logits.numel() <= 512:
        return F.log_softmax(logits, -1)
    return F.log_softmax(logits.movedim(-1, 0), 0).movedim(0, -1)


def _masked(logits: Tensor, mask: Tensor | None) -> Tensor:
    return logits if mask is None else logits.masked_fill(~mask, MASKED)


def _gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise, -log E with E exponential: `exponential_` never draws 0, so it is always finite."""
    return torch.empty(shape, device=generator.device).exponential_(generator=generator).log_().neg_()
