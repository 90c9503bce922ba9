"""Acquisitions: the value of each step of an imagined path, given the agent's model and its posterior.

Every acquisition returns a value per step, so that values can be weighted, added and discounted. Paths are imagined
with the model's means.
"""

from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacfwd

from modules.functional.dynamics.information_gain import (
    a_optimality,
    d_optimality,
    disagreement,
    distillation_error,
    fisher_rows,
    information_gain,
    optimistic_gain,
)


class ImaginedTrajectories(NamedTuple):
    """Imagined paths of B agents, N candidates each.

    latent: `[B, N, H + 1, D]`, starting at the agent's belief.
    features: of the dynamics' last layer at the first H states, `[B, N, H, P]`; a by-product of the rollout.
    control: encoded inputs `[B, N, H, D]`.
    action: in [-1, 1], `[B, N, H, A]`.
    uncertainty: variances of the belief `[B, D]`.
    """

    latent: Tensor
    features: Tensor
    control: Tensor
    action: Tensor
    uncertainty: Tensor


class PlannerContext(NamedTuple):
    """Model of an agent, and the posterior of the last layer of the model's dynamics.

    model: a latent model with `dynamics`, `decoder` and `action_encoder`.
    covariance: `[P, P]` of the last layer's weights, of one output.
    variance: of the regression's targets, a scalar: the process noise in units of the field.
    low, high: the range of the actions `[A]`, in the environment's units.
    box: `modules.exploration.ObservationBox`; None if there is none.
    """

    model: Any
    covariance: Tensor
    variance: Tensor
    low: Tensor
    high: Tensor
    box: Any = None

    def scaled(self, action: Tensor) -> Tensor:
        """Return actions in the environment's units, from actions in [-1, 1]."""
        return self.low + (self.high - self.low) * (action + 1) / 2


class Acquisition(Protocol):
    """Value of imagined steps.

    weight: factor in the sum of several acquisitions.
    """

    weight: float

    def __call__(self, knowledge: PlannerContext, paths: ImaginedTrajectories) -> Tensor:
        """Return values `[B, N, H]`; more is better."""
        ...


class WeightedAcquisition(nn.Module):
    """Base of acquisitions: holds the weight.

    Args:
        weight: factor of the values in the sum of several acquisitions.
    """

    def __init__(self, weight: float = 1.0):
        super().__init__()
        self.weight = weight


class InformationGain(WeightedAcquisition):
    """Information about the last layer's weights, exact for a model that is linear in them (`information_gain`)."""

    def forward(self, knowledge: PlannerContext, paths: ImaginedTrajectories) -> Tensor:
        """Return twice the mutual information in nats that each step adds."""
        outputs = paths.latent.shape[-1]
        return information_gain(paths.features, knowledge.covariance, variance=knowledge.variance, outputs=outputs)


class Disagreement(WeightedAcquisition):
    """Variance between the members of an ensemble of dynamics, in units of the process noise (`disagreement`)."""

    def forward(self, knowledge: PlannerContext, paths: ImaginedTrajectories) -> Tensor:
        """Return the mean over dimensions of the variance over members."""
        return disagreement(predictions(knowledge, paths), knowledge.model.dynamics.variance)


class OptimisticGain(WeightedAcquisition):
    """OPAX's reward: log of one plus the ratio of epistemic to aleatoric variance (`optimistic_gain`)."""

    def forward(self, knowledge: PlannerContext, paths: ImaginedTrajectories) -> Tensor:
        """Return the sum over dimensions."""
        return optimistic_gain(predictions(knowledge, paths), knowledge.model.dynamics.variance)


def predictions(knowledge: PlannerContext, paths: ImaginedTrajectories) -> Tensor:
    """Return each ensemble member's prediction of the next state, `[E, B, N, H, D]`."""
    return cast(Tensor, knowledge.model.dynamics.members(paths.latent[..., :-1, :], paths.control))


class Fisher(WeightedAcquisition):
    """Fisher information of the observations about the last layer's weights, with an uncertain state (`fisher_rows`).

    Args:
        criterion: `d` for the determinant of the posterior, `a` for the trace of its covariance.
        weight: see `WeightedAcquisition`.
    """

    def __init__(self, criterion: str = "d", weight: float = 1.0):
        super().__init__(weight)
        if criterion not in ("a", "d"):
            raise ValueError(f"Fisher: criterion is {criterion!r}; use a or d.")
        self.optimality = d_optimality if criterion == "d" else a_optimality

    def forward(self, knowledge: PlannerContext, paths: ImaginedTrajectories) -> Tensor:
        """Return what each step adds to the criterion."""
        dynamics, dimensions = knowledge.model.dynamics, paths.latent.shape[-1]
        state = paths.latent[..., :-1, :]
        features = paths.features * dynamics.gain
        eye = torch.eye(dimensions, dtype=features.dtype, device=features.device)
        by_weights = (eye[:, :, None] * features[..., None, None, :]).flatten(-2)
        rows = rows_of(knowledge, paths, dynamics.jacobian(state, paths.control), by_weights)
        return self.optimality(rows, knowledge.covariance, steps=state.shape[-2])


class EmbeddingGain(WeightedAcquisition):
    """Information about a small parameter of the dynamics (an embedding, a coefficient), with an uncertain state.

    Args:
        parameter: its name in the dynamics.
        prior: variance of each of its entries before any of the imagined observations.
        weight: factor of the values in the sum of several acquisitions.
    """

    def __init__(self, parameter: str, prior: float = 1.0, weight: float = 1.0):
        super().__init__(weight)
        self.parameter, self.prior = parameter, prior

    def forward(self, knowledge: PlannerContext, paths: ImaginedTrajectories) -> Tensor:
        """Return twice the mutual information in nats that each step adds."""
        dynamics, state = knowledge.model.dynamics, paths.latent[..., :-1, :]
        value = dict(dynamics.named_parameters())[self.parameter]
        step, name = OneStep(dynamics), f"dynamics.{self.parameter}"
        by_value = jacfwd(lambda new: functional_call(step, {name: new}, (state, paths.control)))(value)
        by_value = by_value.flatten(state.dim())
        prior = self.prior * torch.eye(by_value.shape[-1], dtype=state.dtype, device=state.device)
        rows = rows_of(knowledge, paths, dynamics.jacobian(state, paths.control), by_value)
        return d_optimality(rows, prior, steps=state.shape[-2])


class OneStep(nn.Module):
    """Step of dynamics as a module, for `torch.func.functional_call` with replaced parameters."""

    def __init__(self, dynamics: nn.Module):
        super().__init__()
        self.dynamics: Any = dynamics

    def forward(self, latent: Tensor, control: Tensor) -> Tensor:
        """Return the mean of the next state."""
        return cast(Tensor, self.dynamics.step(latent, control))


def rows_of(knowledge: PlannerContext, paths: ImaginedTrajectories, by_state: Tensor, by_weights: Tensor) -> Tensor:
    """Return whitened sensitivities `[B, N, H O, Q]` of the observations to parameters; see `fisher_rows`."""
    observed_by, noise = knowledge.model.decoder.sensitivity(paths.latent[..., 1:, :])
    uncertainty = torch.diag_embed(paths.uncertainty).unsqueeze(1)
    return fisher_rows(
        by_state,
        by_weights,
        observed_by,
        process_noise=knowledge.model.dynamics.variance,
        observation_noise=noise,
        uncertainty=uncertainty,
    )


class Distillation(WeightedAcquisition):
    """Random network distillation: the error of a predictor of a random network, trained on visited states.

    Args:
        dimensions: D, number of dimensions of the latent state.
        hidden: width of both networks.
        outputs: number of outputs of the random network.
        weight: factor of the values in the sum of several acquisitions.
    """

    def __init__(self, dimensions: int, hidden: int = 64, outputs: int = 16, weight: float = 1.0):
        super().__init__(weight)
        layers = [nn.Sequential(nn.Linear(dimensions, hidden), nn.SiLU(), nn.Linear(hidden, outputs)) for _ in range(2)]
        self.target, self.predictor = layers[0].requires_grad_(False), layers[1]

    def forward(self, knowledge: PlannerContext, paths: ImaginedTrajectories) -> Tensor:
        """Return the squared error at the state that each step leads to."""
        return self.error(paths.latent[..., 1:, :])

    def error(self, latent: Tensor) -> Tensor:
        """Return the squared error, which is also the predictor's loss on visited states."""
        return distillation_error(self.predictor(latent), self.target(latent))


class OutsideBox(WeightedAcquisition):
    """Penalty of -1 for every step that leads outside a box of latent states.

    Args:
        low: lower corner of the box, one number per dimension.
        high: upper corner of the box.
        weight: factor of the values in the sum of several acquisitions.
    """

    low: Tensor
    high: Tensor

    def __init__(self, low: list[float], high: list[float], weight: float = 5.0):
        super().__init__(weight)
        self.register_buffer("low", torch.tensor(low), persistent=False)
        self.register_buffer("high", torch.tensor(high), persistent=False)

    def forward(self, knowledge: PlannerContext, paths: ImaginedTrajectories) -> Tensor:
        """Return -1 outside, 0 inside."""
        state = paths.latent[..., 1:, :]
        return -((state < self.low) | (state > self.high)).any(-1).to(state.dtype)


class OutsideObservationBox(WeightedAcquisition):
    """Penalty of -1 for every step whose expected observation lies outside the algorithm's `box`.

    Args:
        weight: see `WeightedAcquisition`.
    """

    needs_box = True

    def __init__(self, weight: float = 5.0):
        super().__init__(weight)

    def forward(self, knowledge: PlannerContext, paths: ImaginedTrajectories) -> Tensor:
        """Return -1 outside, 0 inside."""
        expected = knowledge.model.decode(paths.latent[..., 1:, :])
        return -(knowledge.box.excess(expected) != 0).any(-1).to(expected.dtype)


class ActionCost(WeightedAcquisition):
    """Negative squared norm of the action, in half-ranges."""

    def forward(self, knowledge: PlannerContext, paths: ImaginedTrajectories) -> Tensor:
        """Return values of at most 0."""
        return -paths.action.square().sum(-1)
