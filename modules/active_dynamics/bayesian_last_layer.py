"""What is known about the last layer of a model of dynamics: a Gaussian posterior, kept exact step by step."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from datamodules.core.sequence_types import Sequences
from modules.functional.dynamics.information_gain import Weights, conditioned, from_moments, information_gain


class Posterior(nn.Module):
    """Bayesian linear regression of D outputs on P shared features, in float64; part of the checkpoint.

    Args:
        features: P.   outputs: D.
        prior: variance of every weight before anything was seen.
    """

    mean: Tensor
    covariance: Tensor
    precision: Tensor
    moment: Tensor

    def __init__(self, features: int, outputs: int, prior: float):
        super().__init__()
        eye = torch.eye(features, dtype=torch.float64)
        self.prior = prior
        self.register_buffer("mean", torch.zeros(features, outputs, dtype=torch.float64))
        self.register_buffer("covariance", prior * eye)
        self.register_buffer("precision", eye / prior)
        self.register_buffer("moment", torch.zeros(features, outputs, dtype=torch.float64))

    def observe_(self, features: Tensor, target: Tensor, variance: Tensor) -> Tensor:
        """Learn from observations; the information they carried, twice in nats.

        Args:
            features: `[M, P]`, zero rows teach nothing.   target: `[M, D]`.   variance: of the targets' noise.
        """
        gained = information_gain(features, self.covariance, variance=variance, outputs=target.shape[1]).sum()
        weights = conditioned(Weights(self.mean, self.covariance), features, target, variance=variance)
        self.precision += features.T @ features / variance
        self.moment += features.T @ target / variance
        self._set_(weights)
        return gained

    def refactor_(self) -> None:
        """The same posterior from its sums, without the rounding of many steps."""
        self._set_(from_moments(self.precision, self.moment))

    def refit_(self, features: Tensor, target: Tensor, variance: Tensor) -> None:
        """Forget, and learn from observations that are all there are: after the features themselves have changed."""
        self.precision.copy_(torch.eye(len(self.mean), dtype=torch.float64, device=self.mean.device) / self.prior)
        self.precision += features.T @ features / variance
        self.moment.copy_(features.T @ target / variance)
        self.refactor_()

    def _set_(self, weights: Weights) -> None:
        self.mean.copy_(weights.mean)
        self.covariance.copy_(weights.covariance)


class Lesson(NamedTuple):
    """Regression on the dynamics' last layer: float64 features `[M, P]` and targets `[M, D]`, zero where masked."""

    features: Tensor
    target: Tensor


def lesson_of(model: Any, latent: Tensor, steps: Sequences) -> Lesson:
    """The regression on steps whose states `latent` `[L+1, N, D]` are taken as known.

    Where f is a velocity, its mean along the step is taken as the mean of both ends (the trapezoidal rule): the error
    of f then falls with dt squared, where the start alone leaves one that falls with dt.
    """
    dynamics, before = model.dynamics, latent[:-1]
    control = model.action_encoder(steps.action)
    target = dynamics.field(before) + (latent[1:] - dynamics.step(before, control)) / dynamics.gain
    features = dynamics.features(latent)
    features = (features[:-1] + features[1:]) / 2 if getattr(dynamics, "residual", False) else features[:-1]
    known = (steps.joined & target.isfinite().all(-1)).unsqueeze(-1)
    return Lesson(*(torch.where(known, column.double(), 0).flatten(0, 1) for column in (features, target)))
