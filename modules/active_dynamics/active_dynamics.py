"""`ActiveDynamics`: learn a latent dynamical system by choosing informative actions."""

import math
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from datamodules.core.phase import Phase
from datamodules.core.pytree import add_prefix
from datamodules.core.sequence_types import PREDICTION_STEPS, SequenceBatch, SequenceIteration, ValidationData
from datamodules.core.types import MetricVector, PolicyInput, PolicyOutput, SpaceSpec, State, require_tensor
from modules.active_dynamics.bayesian_last_layer import BayesianLastLayer, RegressionBatch, regression_batch
from modules.active_dynamics.parameter_groups import freeze_encoder_, parameter_groups, regressed_parameters
from modules.active_dynamics.state_estimator import StateEstimator
from modules.base.algorithm import Algorithm
from modules.base.checks import check_dynamics, check_state_vectors, check_values
from modules.base.hparams import save_plain_hyperparameters
from modules.exploration.acquisitions import PlannerContext
from modules.exploration.policies import PlannedExploration, part_of_state
from modules.exploration.warm_up import UNKNOWN_VARIANCE
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

    With `regress_dynamics` f's last layer and a linear action encoder come from that refit, and gradient steps train
    the rest. Without gradient steps encoder and decoder must be frozen then.

    Args:
        spaces: observation and action space; on the command line it comes from the data.
        model: a latent model: `encode`, `decode`, `decoder`, `dynamics`, `action_encoder`, `observed` and `loss`.
        exploration: exploration policy; null plans for information gain.
        warm_up: `modules.exploration.WarmUp`, the first steps with another policy, after which encoder and decoder can
            be set by probabilistic PCA; null for none.
        box: `modules.exploration.ObservationBox`, where to explore, for acquisitions and policies that use it.
        encoder_learning_rate: learning rate of encoder and decoder; 0 freezes them, null takes `learning_rate`.
        regress_dynamics: set the last layer of a latent model's f, and its linear action encoder, by regression on
            everything stored, every `posterior_refit_interval` iterations.
        generalized_least_squares: regress on differences of encoded states with the covariance that the encoder's
            errors give them, instead of taking the states as exact.
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
    warm_up: Any
    box: Any
    low: Tensor
    high: Tensor

    def __init__(
        self,
        spaces: SpaceSpec,
        model: nn.Module,
        exploration: nn.Module | None = None,
        warm_up: nn.Module | None = None,
        box: nn.Module | None = None,
        encoder_learning_rate: float | None = None,
        regress_dynamics: bool = False,
        generalized_least_squares: bool = False,
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
        check_state_vectors(spaces)
        self.encoder_learning_rate, self.regress_dynamics = encoder_learning_rate, regress_dynamics
        self.generalized_least_squares = generalized_least_squares
        self.learning_rate, self.learning_rate_schedule = learning_rate, learning_rate_schedule
        self.max_grad_norm, self.posterior_refit_interval = max_grad_norm, posterior_refit_interval
        self.model, self.exploration = model, exploration or PlannedExploration()
        self.warm_up, self.box = warm_up, box
        self.register_buffer("low", torch.tensor(spaces["action_low"]), persistent=False)
        self.register_buffer("high", torch.tensor(spaces["action_high"]), persistent=False)
        self.alignment: Alignment | None = None
        self.tracker = StateEstimator(self.model, math.prod(spaces["obs_shape"]))
        self.belief_drift, dimensions = torch.zeros(()), int(self.model.dynamics.dimensions)
        features = self.model.dynamics.features(torch.zeros(1, dimensions)).shape[-1]
        self.regressed_actions = len(self.low) if regress_dynamics and hasattr(model.action_encoder, "linear") else 0
        self.posterior = BayesianLastLayer(features + self.regressed_actions, dimensions, prior_variance)
        if encoder_learning_rate == 0:
            freeze_encoder_(model)

    @property
    def policies(self) -> dict[str, Any]:
        """Return the exploration policies by the prefix of their states."""
        return {"explore/": self.exploration} | ({} if self.warm_up is None else {"warm_up/": self.warm_up.exploration})

    def initial_state(self, batch: int) -> State:
        """Return the states of the exploration policies and of the state estimator."""
        state = self.tracker.initial_state(batch, self.device)
        for prefix, policy in self.policies.items():
            leaves = policy.initial_state(batch, len(self.low))
            state |= add_prefix(prefix, {name: leaf.to(self.device) for name, leaf in leaves.items()})
        return state

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the standard normal noise of the exploration policies."""
        return torch.randn(*shape, sum(self.noise_sizes), generator=generator, device=generator.device)

    @property
    def noise_sizes(self) -> list[int]:
        """Return the numbers of standard normals that an action of each policy consumes."""
        return [policy.noise_size(len(self.low)) for policy in self.policies.values()]

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Correct the belief, choose an action, predict the next belief.

        Greedy also explores, around the previous plan only; without noise the random policy returns zero. During a
        warm-up the prediction is unknown: the coordinates change when it ends.
        """
        obs = require_tensor(inputs.obs)
        knowledge = self.knowledge()
        belief, kept = self.tracker.correct(obs.flatten(1), inputs.state, inputs.episode_start)
        if greedy or noise is None:
            noise = torch.zeros(len(obs), sum(self.noise_sizes), device=obs.device)
        actions: list[Tensor] = []
        explored: State = {}
        for (prefix, policy), normal in zip(self.policies.items(), noise.split(self.noise_sizes, -1), strict=True):
            chosen, state = policy(knowledge, belief, part_of_state(inputs, prefix), normal)
            actions.append(chosen)
            explored |= add_prefix(prefix, state)
        chosen = actions[0] if self.warm_up is None else torch.where(self.warm_up.active, actions[1], actions[0])
        action = knowledge.scaled(chosen)
        expected = self.tracker.predict(belief, self.model.action_encoder(action))
        if self.warm_up is not None:
            expected["variance"] = torch.where(self.warm_up.active, UNKNOWN_VARIANCE, expected["variance"])
        extras = {"latent": belief.mean, "latent_variance": belief.variance}
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
        if self.regressed_actions:
            covariance = covariance[: -self.regressed_actions, : -self.regressed_actions]
        return PlannerContext(self.model, covariance, self.regression_noise(), self.low, self.high, self.box)

    def regression_noise(self) -> Tensor:
        """Return the variance of the regression's targets: process noise in units of the field, mean of dimensions."""
        dynamics = self.model.dynamics
        return dynamics.variance.mean() / dynamics.gain**2

    def setup(self, stage: str) -> None:
        """Refuse inexact regression, and encoders that need future observations to act."""
        super().setup(stage)
        if stage == "fit":
            check_dynamics(self, self.data)

    def prepare(self, collected: Any) -> tuple[RegressionBatch | None, SequenceBatch]:
        """Return features and targets of the regression (newest steps, or all at a refit), and the minibatches."""
        steps = cast(SequenceIteration, collected)
        if not (self.data.num_updates or self.regress_dynamics):
            return self.regression(cast(SequenceBatch, steps.new_sequences)), steps.minibatches
        if steps.new_sequences is None:
            return None, steps.minibatches
        stored = self.data.ring.history()
        ended = self.warm_up is not None and self.end_warm_up_(stored, len(steps.new_sequences.contiguous))
        iteration = self.updates // max(self.data.num_updates, 1)
        waiting = self.warm_up is not None and bool(self.warm_up.active)
        if not ended and (waiting or iteration % self.posterior_refit_interval):
            return None, steps.minibatches
        latent = self.encoded(stored)
        if not self.model.observed:
            self.measure_drift_(steps, latent[1:][stored.contiguous])
        if self.box is not None:
            self.box.visit_(self.model.decode(latent[1:][stored.contiguous]))
        return self.regression(stored, latent), steps.minibatches

    def end_warm_up_(self, stored: SequenceBatch, steps: int) -> bool:
        """Count new steps of each agent; return whether the warm-up ended, and set encoder and decoder then."""
        ended = bool(self.warm_up.count_(steps))
        if ended and self.warm_up.linear_init:
            self.model.init_linear_(stored.obs[1:][stored.contiguous].flatten(1), self.box)
        return ended

    def regression(self, steps: SequenceBatch, latent: Tensor | None = None) -> RegressionBatch:
        """Return the regression on the given steps; their observations are encoded unless `latent` is given."""
        if latent is None:
            latent = self.encoded(steps)
        variances = (self.regression_noise(), self.sensor_noise(steps)) if self.generalized_least_squares else None
        return regression_batch(self.model, latent, steps, actions=bool(self.regressed_actions), variances=variances)

    def sensor_noise(self, steps: SequenceBatch) -> Tensor:
        """Return the variance of the encoder's errors in units of the field, mean of dimensions and observations."""
        variance = self.model.encode(steps.obs.flatten(2)[-1:])[1]
        return variance.mean() / self.model.dynamics.gain**2

    def refit_(self, regression: RegressionBatch) -> None:
        """Refit the posterior; with `regress_dynamics` set f's last layer and the action encoder to its mean."""
        whitened = self.generalized_least_squares
        noise = torch.ones_like(self.regression_noise()) if whitened else self.regression_noise()
        self.posterior.refit_(*regression, noise.double())
        if self.regress_dynamics:
            parts = self.posterior.mean.split([len(self.model.dynamics.weight), self.regressed_actions])
            for parameter, mean in zip(regressed_parameters(self.model), parts, strict=False):
                parameter.data.copy_(mean if parameter is self.model.dynamics.weight else mean.T)

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
                self.refit_(regression)
            names = ("loss", "grad_norm", *self.model.measures)
            return MetricVector(tuple(f"dynamics/{name}" for name in names), losses)
        if self.regress_dynamics:
            self.updates += 1
            if regression is not None:
                self.refit_(regression)
            return MetricVector((), self.posterior.mean.new_zeros(0))
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
        self.optim.make_state_()  # before the graph of the first loss
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
        """Return one optimizer over the parameters of the model and the acquisitions, without regressed ones."""
        regressed = regressed_parameters(self.model) if self.regress_dynamics and self.data.num_updates else []
        learned = trainable(parameter for part in (self.model, *self.novelties) for parameter in part.parameters())
        groups = parameter_groups(self.model, learned, regressed, self.encoder_learning_rate)
        return [Adam(groups, lr=self.learning_rate)]

    def configure_phases(self) -> dict[str, Phase[Any]]:
        """Return the phases `prepare` and `update`, the latter being regression or gradient steps."""
        work = self.gradient_steps if self.data.num_updates else self.regression_step
        prepare = Phase(
            self.prepare, self.device, name="prepare", capturable=not (self.data.num_updates or self.regress_dynamics)
        )
        return {
            "prepare": prepare,
            "update": Phase(work, self.device, name="update", mutated_tensors=self.mutated_tensors),
        }
