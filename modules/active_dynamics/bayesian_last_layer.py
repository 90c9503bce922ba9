"""Gaussian posterior of the last layer of a dynamics model, updated exactly step by step."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from datamodules.core.sequence_types import SequenceBatch
from modules.functional.dynamics.information_gain import (
    Weights,
    information_gain,
    posterior_from_sums,
    posterior_update,
)
from modules.functional.dynamics.linear_gaussian import whiten_differences
from modules.optim.distributed import all_gather_rows, all_reduce_sum


class BayesianLastLayer(nn.Module):
    """Bayesian linear regression of D outputs on P shared features, in float64; part of the checkpoint.

    In a run of several ranks it is fitted to the observations of all of them, so that it is the same on each.

    Args:
        features: P, number of features.
        outputs: D, number of outputs.
        prior: variance of every weight before any observation.
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

    def update_(self, features: Tensor, target: Tensor, variance: Tensor) -> Tensor:
        """Update the posterior with observations; return their information gain, twice in nats.

        Args:
            features: `[M, P]`; zero rows have no effect.
            target: `[M, D]`.
            variance: of the targets' noise.
        """
        features, target = all_gather_rows(features), all_gather_rows(target)
        gain = information_gain(features, self.covariance, variance=variance, outputs=target.shape[1]).sum()
        weights = posterior_update(Weights(self.mean, self.covariance), features, target, variance=variance)
        self.precision += features.T @ features / variance
        self.moment += features.T @ target / variance
        self._set_(weights)
        return gain

    def recompute_(self) -> None:
        """Recompute the posterior from its sums, without the accumulated rounding of many steps."""
        self._set_(posterior_from_sums(self.precision, self.moment))

    def refit_(self, features: Tensor, target: Tensor, variance: Tensor) -> None:
        """Reset the posterior and fit it to the given observations, after the features themselves have changed.

        The numbers of observations of the ranks may differ.
        """
        self.precision.copy_(torch.eye(len(self.mean), dtype=torch.float64, device=self.mean.device) / self.prior)
        self.precision += all_reduce_sum(features.T @ features) / variance
        self.moment.copy_(all_reduce_sum(features.T @ target) / variance)
        self.recompute_()

    def _set_(self, weights: Weights) -> None:
        self.mean.copy_(weights.mean)
        self.covariance.copy_(weights.covariance)


class RegressionBatch(NamedTuple):
    """Regression of the dynamics' last layer: float64 features `[M, P]` and targets `[M, D]`, zero where masked."""

    features: Tensor
    target: Tensor


def regression_batch(
    model: Any,
    latent: Tensor,
    steps: SequenceBatch,
    *,
    actions: bool = False,
    variances: tuple[Tensor, Tensor] | None = None,
) -> RegressionBatch:
    """Return the regression on steps of states `latent` `[L+1, N, D]`.

    Where f is a velocity, its mean along the step is approximated by the mean of both ends (trapezoidal rule): the
    error of f is then O(dt^2) instead of O(dt).

    Args:
        actions: append the actions to the features: their weights are the matrix B of a linear action encoder.
        variances: of the targets given exact states, and of the states' errors in the targets' unit: for generalised
            least squares (`whiten_differences`), whose targets have unit variance. None takes the states as exact.
    """
    dynamics, before = model.dynamics, latent[:-1]
    control = model.action_encoder(steps.action)
    target = dynamics.field(before) + (latent[1:] - dynamics.step(before, control)) / dynamics.gain
    features = dynamics.features(latent)
    features = (features[:-1] + features[1:]) / 2 if getattr(dynamics, "residual", False) else features[:-1]
    if actions:
        factor = dynamics.dt / dynamics.gain
        target, features = target + factor * control, torch.cat([features, factor * steps.action], -1)
    known = steps.contiguous & target.isfinite().all(-1)
    columns = torch.where(known.unsqueeze(-1), torch.cat([features, target], -1).double(), 0)
    if variances is not None:
        columns = whiten_differences(columns, known, process=variances[0].double(), sensor=variances[1].double())
    return RegressionBatch(*columns.flatten(0, 1).split([features.shape[-1], target.shape[-1]], -1))
