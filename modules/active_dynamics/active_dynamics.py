"""`ActiveDynamics`: learn a latent dynamical system by choosing informative actions."""

import math
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from datamodules.core.errors import ConfigurationError
from datamodules.core.phase import Phase
from datamodules.core.sequence_types import PREDICTION_STEPS, SequenceBatch, SequenceIteration, ValidationData
from datamodules.core.types import MetricVector, PolicyInput, PolicyOutput, SpaceSpec, State, require_tensor
from modules.active_dynamics.bayesian_last_layer import BayesianLastLayer, RegressionBatch, regression_batch
from modules.active_dynamics.state_estimator import StateEstimator
from modules.base.algorithm import Algorithm
from modules.base.checks import check_dynamics, check_values
from modules.base.hparams import save_plain_hyperparameters
from modules.exploration.acquisitions import PlannerContext
from modules.exploration.policies import PlannedExploration
from modules.functional.dynamics.elbo import valid_rows
from modules.functional.dynamics.prediction_metrics import (
    Alignment,
    aligned_field,
    apply_affine,
    fit_affine,
    r2_score,
    r2_scores,
    velocity,
)
from modules.functional.schedules import Schedule
from modules.optim.distributed import all_reduce_mean, world_size
from modules.optim.optimizer_group import trainable

RECOMPUTE_INTERVAL = 1_000
"""Regression updates between two recomputations of the posterior from its sums."""


class ActiveDynamics(Algorithm):
    """Active learning of a dynamical system: choose the actions whose observations are most informative for the model.

    z_{t+1} = z_t + dt (f(z_t) + B u_t) + noise,   y_t ~ p(y | z_t)

    At every step the agent predicts its state, corrects it with the newest observation, and lets its exploration policy
    choose an action: usually a planner that imagines paths with the model and takes the most valuable one.

    `data.num_updates` sets how the model is learned:

    * 0: exact Bayesian regression of f's last layer on every new step. The state must be observed and the features
      fixed, such as radial basis functions.
    * U: U gradient steps an iteration on the model's own loss, each on a minibatch of stored sequences; the posterior,
      which acquisitions use, is refitted to all stored sequences every `posterior_refit_interval` iterations.

    Args:
        spaces: observation and action space; on the command line it comes from the data.
        model: a latent model: `encode`, `decode`, `decoder`, `dynamics`, `action_encoder`, `observed` and `loss`.
        exploration: exploration policy; null plans for information gain.
        prior_variance: variance of the last layer's weights before any observation.
        learning_rate: learning rate of Adam on the model's loss, and on that of acquisitions with parameters.
        learning_rate_schedule: constant rate, or a decay to 0 over the run: linear or cosine.
        max_grad_norm: maximum global norm of the gradient; larger ones are scaled down.
        posterior_refit_interval: iterations between two refits of the posterior, with gradient steps.

    Raises: ConfigurationError for values out of range, and for images.
    """

    action_types = ("continuous",)
    compilable = False  # plans unroll into thousands of operations
    model: Any
    exploration: Any
    low: Tensor
    high: Tensor

    def __init__(
        self,
        spaces: SpaceSpec,
        model: nn.Module,
        exploration: nn.Module | None = None,
        prior_variance: float = 1.0,
        learning_rate: float = 1e-3,
        learning_rate_schedule: Schedule = "constant",
        max_grad_norm: float = 10.0,
        posterior_refit_interval: int = 10,
    ):
        super().__init__(spaces)
        save_plain_hyperparameters(self)
        check_values(
            prior_variance=prior_variance,
            learning_rate=learning_rate,
            max_grad_norm=max_grad_norm,
            posterior_refit_interval=posterior_refit_interval,
        )
        if parts := spaces.get("obs_parts"):
            raise ConfigurationError(
                f"ActiveDynamics learns the dynamics of state vectors, but the observations have the parts"
                f" {', '.join(parts)}: wrap the environment in gymnasium.wrappers.FlattenObservation."
            )
        if spaces["obs_dtype"] == "uint8" or len(spaces["obs_shape"]) > 2:
            raise ConfigurationError(
                f"ActiveDynamics learns the dynamics of state vectors, but the observations are images or bytes"
                f" ({spaces['obs_dtype']} of shape {spaces['obs_shape']}): choose an environment that shows a state."
            )
        self.learning_rate, self.learning_rate_schedule = learning_rate, learning_rate_schedule
        self.max_grad_norm, self.posterior_refit_interval = max_grad_norm, posterior_refit_interval
        self.model, self.exploration = model, exploration or PlannedExploration()
        self.register_buffer("low", torch.tensor(spaces["action_low"]), persistent=False)
        self.register_buffer("high", torch.tensor(spaces["action_high"]), persistent=False)
        self.alignment: Alignment | None = None
        self.tracker = StateEstimator(self.model, math.prod(spaces["obs_shape"]))
        self.belief_drift, dimensions = torch.zeros(()), int(self.model.dynamics.dimensions)
        features = self.model.dynamics.features(torch.zeros(1, dimensions)).shape[-1]
        self.posterior = BayesianLastLayer(features, dimensions, prior_variance)

    def initial_state(self, batch: int) -> State:
        """Return the states of the exploration policy and of the state estimator."""
        explore = self.exploration.initial_state(batch, len(self.low))
        moved = {f"explore/{name}": leaf.to(self.device) for name, leaf in explore.items()}
        return self.tracker.initial_state(batch, self.device) | moved

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the standard normal noise of the exploration policy."""
        size = self.exploration.noise_size(len(self.low))
        return torch.randn(*shape, size, generator=generator, device=generator.device)

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Correct the belief, choose an action, predict the next belief.

        Greedy also explores, around the previous plan only; without noise the random policy returns zero.
        """
        state, episode_start, obs = inputs.state, inputs.episode_start, require_tensor(inputs.obs)
        knowledge = self.knowledge()
        belief, kept = self.tracker.correct(obs.flatten(1), state, episode_start)
        explore = {
            name.removeprefix("explore/"): leaf.masked_fill(episode_start.view(-1, *[1] * (leaf.dim() - 1)), 0)
            for name, leaf in state.items()
            if name.startswith("explore/")
        }
        if greedy or noise is None:
            noise = torch.zeros(len(obs), self.exploration.noise_size(len(self.low)), device=obs.device)
        chosen, explore = self.exploration(knowledge, belief, explore, noise)
        action = knowledge.scaled(chosen)
        expected = self.tracker.predict(belief, self.model.action_encoder(action))
        extras = {"latent": belief.mean, "latent_variance": belief.variance}
        explored = {f"explore/{name}": leaf for name, leaf in explore.items()}
        return PolicyOutput(action, extras), expected | kept | explored

    def action_details(self, inputs: PolicyInput, output: PolicyOutput, state: State) -> dict[str, Tensor]:
        """Return means and variances `[B, D]` of the belief over the state."""
        return {name: output.extras[name] for name in ("latent", "latent_variance")}

    def encoded(self, steps: SequenceBatch) -> Tensor:
        """Return the encoder's means `[L+1, N, D]` of all observations of sequences."""
        counts, begins = valid_rows(steps.contiguous)
        return self.model.encode(steps.obs.flatten(2), begins | ~counts)[0]

    def knowledge(self) -> PlannerContext:
        """Return the model, its posterior and the action range, for acquisitions."""
        covariance = self.posterior.covariance.to(self.low.dtype)
        return PlannerContext(self.model, covariance, self.regression_noise(), self.low, self.high)

    def regression_noise(self) -> Tensor:
        """Return the variance of the regression's targets: process noise in units of the field, mean of dimensions."""
        dynamics = self.model.dynamics
        return dynamics.variance.mean() / dynamics.gain**2

    def setup(self, stage: str) -> None:
        """Refuse inexact regression, and encoders that need future observations to act."""
        super().setup(stage)
        if stage == "fit":
            check_dynamics(self.model, self.data)

    def prepare(self, collected: Any) -> tuple[RegressionBatch | None, SequenceBatch]:
        """Return features and targets of the regression (newest steps, or all at a refit), and the minibatches."""
        steps = cast(SequenceIteration, collected)
        if not len(steps.minibatches.contiguous):
            return self.regression(cast(SequenceBatch, steps.new_sequences)), steps.minibatches
        if steps.all_stored is None or self.updates // self.data.num_updates % self.posterior_refit_interval:
            return None, steps.minibatches
        latent = self.encoded(steps.all_stored)
        if not self.model.observed:
            self.measure_drift_(steps, latent[1:][steps.all_stored.contiguous])
        return self.regression(steps.all_stored, latent), steps.minibatches

    def regression(self, steps: SequenceBatch, latent: Tensor | None = None) -> RegressionBatch:
        """Return the regression on the given steps; their observations are encoded unless `latent` is given."""
        return regression_batch(self.model, self.encoded(steps) if latent is None else latent, steps)

    def measure_drift_(self, steps: SequenceIteration, stored: Tensor) -> None:
        """Measure the distance of the agents' beliefs from freshly encoded states, in their standard deviations.

        Args:
            stored: encoded states of all stored observations, `[M, D]`.
        """
        fresh = self.encoded(cast(SequenceBatch, steps.new_sequences))[:-1]
        self.belief_drift = (steps.extras["latent"] - fresh).abs().mean() / stored.std(0).mean()

    def update(self, batch: tuple[RegressionBatch | None, SequenceBatch]) -> MetricVector:
        """Take a regression update, or gradient steps followed by a refit when it is due."""
        regression, minibatches = batch
        if len(minibatches.contiguous):
            if self.updates == 0:
                self.model.init_bias_(minibatches.obs[:, 1:].flatten(3), minibatches.contiguous)
            draws = [self.model.draws(contiguous, self.minibatch_generator) for contiguous in minibatches.contiguous]
            losses = self.phases["update"](minibatches, tuple(draws))
            self.updates += len(minibatches.contiguous)
            if regression is not None:
                self.posterior.refit_(*regression, self.regression_noise().double())
            return MetricVector(
                tuple(f"dynamics/{name}" for name in ("loss", "grad_norm", *self.model.measures)), losses
            )
        assert regression is not None
        if self.updates % RECOMPUTE_INTERVAL == RECOMPUTE_INTERVAL - 1:
            self.posterior.recompute_()
        self.updates += 1
        gain = self.phases["update"](regression.features, regression.target)
        return MetricVector(("dynamics/information",), gain.unsqueeze(0))

    @torch.no_grad()
    def regression_step(self, features: Tensor, target: Tensor) -> Tensor:
        """Update the posterior with new steps; return their information gain."""
        gain = self.posterior.update_(features, target, self.regression_noise().double())
        self.model.dynamics.weight.copy_(self.posterior.mean)
        return gain

    def gradient_steps(self, minibatches: SequenceBatch, draws: tuple[Any, ...]) -> Tensor:
        """Take a gradient step on each minibatch; return mean loss, gradient norm, and the model's own measures."""
        values = []
        for number, noise in enumerate(draws):
            piece = SequenceBatch(*(column[number] for column in minibatches))
            loss, measured = self.model.loss(piece.obs.flatten(2), piece.action, piece.contiguous, noise)
            if novelties := self.novelties:
                latent = self.encoded(piece).detach()
                loss = loss + sum(novelty.error(latent).mean() for novelty in novelties)
            norm = self.optim.step_if_finite(loss, self.raw_optimizers[0], self.max_grad_norm)
            values.append(torch.cat([torch.stack([loss.detach(), norm]), measured]))
        return torch.stack(values).mean(0)

    def update_schedules(self) -> None:
        """Set the learning rate and the model's schedules."""
        self.schedule_learning_rates_()
        self.model.update_schedules(self.progress)

    def extra_metrics(self) -> dict[str, float | Tensor]:
        """Return the drift of the beliefs, where the state is not observed."""
        return {} if self.model.observed else {"dynamics/drift": self.belief_drift}

    @property
    def novelties(self) -> list[Any]:
        """Return the acquisitions with trainable parameters."""
        return [part for part in self.exploration.modules() if hasattr(part, "error")]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Predict held-out sequences, and the vector field where the true one is known."""
        self.held_out = self.validation_scores(batch)

    test_step = validation_step

    def validation_scores(self, batch: ValidationData) -> dict[str, Tensor]:
        """Return R2 by name: `r2_k` of k steps ahead and `field_r2`."""
        steps = batch.sequences
        obs = steps.obs.flatten(2)
        latent, control = self.encoded(steps), self.model.action_encoder(steps.action)
        true = obs if batch.mean is None else batch.mean.flatten(2)
        ahead = r2_scores(
            latent,
            control,
            steps.contiguous,
            true,
            step=self.model.dynamics.step,
            decode=self.model.decode,
            ahead=PREDICTION_STEPS,
        )
        scores = {f"r2_{k}": value for k, value in zip(PREDICTION_STEPS, ahead, strict=True)}
        if batch.grid is not None and batch.field is not None and batch.state is not None:
            self.alignment = (
                None if self.model.observed else fit_affine(latent.flatten(0, 1), batch.state.flatten(0, 1))
            )
            scores["field_r2"] = r2_score(self.field(batch.grid), batch.field)
        return scores

    def field(self, states: Tensor) -> Tensor:
        """Return the learned field at true states `[G, D]`, in the coordinates aligned by the last evaluation."""
        return aligned_field(partial(velocity, self.model.dynamics), states, self.alignment)

    def predicted(self, batch: ValidationData, paths: int, steps: int) -> tuple[Tensor, Tensor]:
        """Return paths `[steps + 1, paths, D]` predicted from the first observation, and the true ones.

        Both are in true coordinates, as the last evaluation aligned them.
        """
        pieces = batch.sequences
        latent = self.encoded(pieces)[: steps + 1, :paths]
        control, path = self.model.action_encoder(pieces.action[:steps, :paths]), [latent[0]]
        for t in range(len(latent) - 1):
            path.append(self.model.dynamics.step(path[-1], control[t]))
        observed = latent if batch.state is None else batch.state[: steps + 1, :paths]
        return apply_affine(torch.stack(path), self.alignment), observed

    def visited_states(self) -> Tensor:
        """Return the states visited by the agents, `[M, D]`, in true coordinates."""
        history = self.data.ring.history()
        return apply_affine(self.encoded(history)[1:][history.contiguous], self.alignment)

    def on_validation_epoch_end(self) -> None:
        """Log the evaluation against environment steps; values that checkpoints monitor also go through Lightning."""
        values = all_reduce_mean(torch.stack(list(self.held_out.values()))).tolist()
        named = {f"dynamics/{name}": value for name, value in zip(self.held_out, values, strict=True)}
        self.log_values(named)
        self.log_dict(named, logger=not self._fitting, sync_dist=world_size() > 1)

    on_test_epoch_end = on_validation_epoch_end

    def build_optimizers(self) -> list[Optimizer]:
        """Return one optimizer over the parameters of the model and the acquisitions."""
        parts = [self.model, *self.novelties]
        learned = trainable(parameter for part in parts for parameter in part.parameters())
        return [Adam(learned, lr=self.learning_rate)]

    def configure_phases(self) -> dict[str, Phase[Any]]:
        """Return the phases `prepare` and `update`, the latter being regression or gradient steps."""
        work = self.gradient_steps if self.data.num_updates else self.regression_step
        prepare = Phase(self.prepare, self.device, name="prepare", capturable=not self.data.num_updates)
        return {
            "prepare": prepare,
            "update": Phase(work, self.device, name="update", mutated_tensors=self.mutated_tensors),
        }
