"""Distributions over actions: objects around a parameter tensor, whose results keep its dtype."""

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from modules.functional.sampling import MASKED_LOGIT

_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)


class Distribution(Protocol):
    """Distribution returned by a policy head, one for each leading index `[...]`.

    parameters: tensor that depends on the observation, `[..., P]`; the head's `distribution` rebuilds the object from
    it.
    """

    parameters: Tensor

    @property
    def mode(self) -> Tensor:
        """Return the most likely action, `[...]` or `[..., parts]`."""
        ...

    def sample(self, noise: Tensor) -> Tensor:
        """Return a sampled action, given noise drawn by the head's `noise`."""
        ...

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log-probability or log-density `[...]` of an action, in nats, summed over its parts."""
        ...

    def entropy(self) -> Tensor:
        """Return the entropy `[...]` in nats, summed over the parts."""
        ...


class Categorical:
    """Categorical distribution over `actions` from logits `[..., actions]`; an action is int64 `[...]` from 0."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = self.parameters = logits
        self._log_probs: Tensor | None = None

    @property
    def log_probs(self) -> Tensor:
        """Return the normalised logits `[..., actions]`, computed once."""
        if self._log_probs is None:
            self._log_probs = _log_softmax(self.logits)
        return self._log_probs

    @property
    def mode(self) -> Tensor:
        """Return the action with the largest logit, `[...]`; the first of equal ones."""
        return self.logits.argmax(-1)

    def sample(self, noise: Tensor) -> Tensor:
        """Return a sample `[...]` by the Gumbel-max trick, from standard Gumbel noise `[..., actions]`."""
        return (self.logits + noise).argmax(-1)

    def uniform(self, noise: Tensor) -> Tensor:
        """Return a uniformly drawn unmasked action, independent of the policy, from the same noise as `sample`."""
        return noise.masked_fill(self.logits <= 0.5 * MASKED_LOGIT, MASKED_LOGIT).argmax(-1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log-probability `[...]` of actions `[...]`."""
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """Return -sum p log p, `[...]`."""
        return -(self.log_probs.exp() * self.log_probs).sum(-1)


class MultiCategorical:
    """Independent categoricals, one a part, from logits `[..., sum(sizes)]`; an action is int64 `[..., parts]`."""

    def __init__(self, logits: Tensor, sizes: Sequence[int]) -> None:
        self.parameters, self.sizes = logits, list(sizes)
        self.parts = [Categorical(part) for part in logits.split(self.sizes, -1)]

    @property
    def mode(self) -> Tensor:
        """Return the action with the largest logit of every part, `[..., parts]`."""
        return torch.stack([part.mode for part in self.parts], -1)

    def sample(self, noise: Tensor) -> Tensor:
        """Return a sample of every part, from Gumbel noise `[..., sum(sizes)]`."""
        draws = noise.split(self.sizes, -1)
        return torch.stack([part.sample(draw) for part, draw in zip(self.parts, draws, strict=True)], -1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log-probability `[...]` of actions `[..., parts]`."""
        choices = zip(self.parts, action.unbind(-1), strict=True)
        return torch.stack([part.log_prob(choice) for part, choice in choices]).sum(0)

    def entropy(self) -> Tensor:
        """Return the sum of the parts' entropies, `[...]`."""
        return torch.stack([part.entropy() for part in self.parts]).sum(0)


class Bernoulli:
    """Independent binary parts from logits `[..., parts]`; an action is `[..., parts]` zeros and ones."""

    def __init__(self, logits: Tensor) -> None:
        self.logits = self.parameters = logits

    @property
    def mode(self) -> Tensor:
        """Return 1 where it is more likely than 0, `[..., parts]`."""
        return (self.logits > 0).long()

    def sample(self, noise: Tensor) -> Tensor:
        """Return sampled zeros and ones, from standard logistic noise `[..., parts]`."""
        return (self.logits + noise > 0).long()

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log-probability `[...]` of zeros and ones `[..., parts]`, of any dtype."""
        return (action * self.logits - F.softplus(self.logits)).sum(-1)

    def entropy(self) -> Tensor:
        """Return the sum of the parts' entropies, `[...]`."""
        return (F.softplus(self.logits) - self.logits * self.logits.sigmoid()).sum(-1)


class DiagonalGaussian:
    """Independent normals from means `[..., dims]` and log standard deviations `[dims]`; actions are not clipped."""

    def __init__(self, mean: Tensor, log_std: Tensor) -> None:
        self.mean = self.parameters = mean
        self.log_std = log_std

    @property
    def mode(self) -> Tensor:
        """Return the mean, `[..., dims]`."""
        return self.mean

    def sample(self, noise: Tensor) -> Tensor:
        """Return the mean plus std times noise, `[..., dims]`, from standard normal noise of that shape."""
        return torch.addcmul(self.mean, self.log_std.exp(), noise)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the log-density `[...]` of actions `[..., dims]`."""
        deviation = (action - self.mean) * (-self.log_std).exp()
        return (-0.5 * deviation.square() - self.log_std - _LOG_SQRT_2PI).sum(-1)

    def entropy(self) -> Tensor:
        """Return the differential entropy `[...]`, equal in all rows: the standard deviation is state-independent."""
        return (self.log_std + (0.5 + _LOG_SQRT_2PI)).sum().expand(self.mean.shape[:-1])


def cross_entropy(reference: Distribution, policy: Distribution) -> Tensor:
    """Return the cross-entropy H(p, q) = -E_{a ~ p} log q(a) of reference p and policy q in nats, `[...]`.

    Args:
        reference: usually without gradient.   policy: of the same class.

    Raises:
        TypeError: If the distributions are of different classes, or of one that is not known.
    """
    match reference, policy:
        case Categorical(), Categorical():
            return -(reference.log_probs.exp() * policy.log_probs).sum(-1)
        case MultiCategorical(), MultiCategorical():
            parts = zip(reference.parts, policy.parts, strict=True)
            return torch.stack([cross_entropy(one, other) for one, other in parts]).sum(0)
        case Bernoulli(), Bernoulli():
            return (F.softplus(policy.logits) - reference.logits.sigmoid() * policy.logits).sum(-1)
        case DiagonalGaussian(), DiagonalGaussian():
            squares = (reference.mean - policy.mean).square() + (2 * reference.log_std).exp()
            return (0.5 * squares * (-2 * policy.log_std).exp() + policy.log_std + _LOG_SQRT_2PI).sum(-1)
        case Hybrid(), Hybrid():
            choices = cross_entropy(reference.choices, policy.choices)
            return choices + cross_entropy(reference.continuous, policy.continuous)
    raise TypeError(f"No cross-entropy of {type(reference).__name__} and {type(policy).__name__}.")


def distribution_details(policy: object) -> dict[str, Tensor]:
    """Return the probabilities `[..., choices]` of a categorical or binary policy, or the `std` of a continuous one."""
    match policy:
        case Categorical():
            return {"probabilities": policy.log_probs.exp()}
        case MultiCategorical():
            return {"probabilities": torch.cat([part.log_probs.exp() for part in policy.parts], -1)}
        case Bernoulli():
            return {"probabilities": policy.logits.sigmoid()}
        case DiagonalGaussian():
            return {"std": policy.log_std.exp().expand_as(policy.mean)}
    return {}


class Hybrid:
    """Independent categoricals and normals, from logits and means `[..., sum(sizes) + dims]`.

    An action is `[..., len(sizes) + dims]` in floating point: the choices, then the continuous parts.
    """

    def __init__(self, parameters: Tensor, sizes: Sequence[int], log_std: Tensor) -> None:
        self.parameters, self.sizes = parameters, list(sizes)
        logits, mean = parameters.split([sum(sizes), len(log_std)], -1)
        self.choices, self.continuous = MultiCategorical(logits, sizes), DiagonalGaussian(mean, log_std)

    @property
    def mode(self) -> Tensor:
        """Return the most likely choices and the means."""
        return torch.cat([self.choices.mode.to(self.parameters.dtype), self.continuous.mode], -1)

    def sample(self, noise: Tensor) -> Tensor:
        """Return a sample, from the noise of both, concatenated."""
        gumbels, normals = noise.split([sum(self.sizes), noise.shape[-1] - sum(self.sizes)], -1)
        chosen = self.choices.sample(gumbels).to(self.parameters.dtype)
        return torch.cat([chosen, self.continuous.sample(normals)], -1)

    def log_prob(self, action: Tensor) -> Tensor:
        """Return the sum of the log-probabilities of the choices and the log-density of the others, `[...]`."""
        chosen, values = action[..., : len(self.sizes)].long(), action[..., len(self.sizes) :]
        return self.choices.log_prob(chosen) + self.continuous.log_prob(values)

    def entropy(self) -> Tensor:
        """Return the sum of the parts' entropies, `[...]`."""
        return self.choices.entropy() + self.continuous.entropy()


def _log_softmax(logits: Tensor) -> Tensor:
    """Return log-softmax over the last dimension; large inputs are transposed, which is four times faster on a CPU."""
    if logits.numel() <= 512:
        return F.log_softmax(logits, -1)
    return F.log_softmax(logits.movedim(-1, 0), 0).movedim(0, -1)
