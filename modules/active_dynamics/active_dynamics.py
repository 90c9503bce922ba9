"""Active dynamics: learn a latent dynamical system by choosing what to try."""

import math
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from datamodules.core.errors import UsageError
from datamodules.core.phase import Joint
from datamodules.core.sequence_types import AHEAD, HeldOut, SequenceExperience, Sequences
from datamodules.core.types import Decision, Scalars, Spaces, State
from modules.active_dynamics.bayesian_last_layer import Lesson, Posterior, lesson_of
from modules.active_dynamics.state_estimator import Tracker
from modules.base.algorithm import Algorithm
from modules.base.checks import check_dynamics, check_values
from modules.base.hparams import keep_hyperparameters
from modules.exploration.acquisitions import Knowledge
from modules.exploration.policies import Planned
from modules.functional.dynamics.elbo import rows_that_count
from modules.functional.dynamics.prediction_metrics import (
    Alignment,
    affine,
    aligned,
    aligned_field,
    determination,
    determinations,
    velocity,
)
from modules.functional.schedules import Schedule
from modules.optim.distributed import averaged, ranks
from modules.optim.optimizer_group import learning

REFACTOR = 1_000
"""Regressions between two computations of the posterior from its sums."""


class ActiveDynamics(Algorithm):
    """Explores a dynamical system for what its model would learn from it.

    z_{t+1} = z_t + dt (f(z_t) + B u_t) + noise,   y_t ~ p(y | z_t)

    At every step the agent predicts where it is, corrects that with the newest observation, and lets its exploration
    choose an action: usually a planner that imagines paths with the model and takes the one that is worth most.

    How it learns follows from `data.updates`:

    * 0: exact Bayesian regression of f's last layer on every step as it comes. The state must be observed and the
      features fixed, such as a grid of bumps.
    * U: as many gradient steps an iteration, each on a minibatch of remembered pieces, down the model's own loss; the
      posterior, which acquisitions look at, is made anew from all that is remembered every `refit_every` iterations.

    Args:
        spaces: what the environment shows and takes; on the command line it comes from the data.
        model: a latent model: `encode`, `decode`, `decoder`, `dynamics`, `action_encoder`, `observed` and `loss`.
        exploration: chooses the actions; null plans for information gain.
        prior: variance of the last layer's weights before anything was observed.
        learning_rate: of Adam on the model's loss, and on that of acquisitions that learn.
        learning_rate_schedule: constant, or a decay to 0 over the run: linear or cosine.
        max_grad_norm: bound on the gradient's global norm.
        refit_every: iterations between two posteriors computed anew, where there are gradient steps.

    Raises: UsageError for values that cannot be, and for images.
    """

    action_kinds = ("continuous",)
    compilable = False  # plans unroll into thousands of operations
    model: Any
    exploration: Any
    low: Tensor
    high: Tensor

    def __init__(
        self,
        spaces: Spaces,
        model: nn.Module,
        exploration: nn.Module | None = None,
        prior: float = 1.0,
        learning_rate: float = 1e-3,
        learning_rate_schedule: Schedule = "constant",
        max_grad_norm: float = 10.0,
        refit_every: int = 10,
    ):
        super().__init__(spaces)
        keep_hyperparameters(self)
        check_values(prior=prior, learning_rate=learning_rate, max_grad_norm=max_grad_norm, refit_every=refit_every)
        if spaces["obs_dtype"] == "uint8" or len(spaces["obs_shape"]) > 2:
            raise UsageError(
                f"ActiveDynamics learns the dynamics of vectors of numbers, and this environment shows images or bytes"
                f" ({spaces['obs_dtype']} of shape {spaces['obs_shape']}): choose one that shows a state."
            )
        self.learning_rate, self.learning_rate_schedule = learning_rate, learning_rate_schedule
        self.max_grad_norm, self.refit_every = max_grad_norm, refit_every
        self.model, self.exploration = model, exploration or Planned()
        self.register_buffer("low", torch.tensor(spaces["action_low"]), persistent=False)
        self.register_buffer("high", torch.tensor(spaces["action_high"]), persistent=False)
        self.alignment: Alignment | None = None
        self.tracker = Tracker(self.model, math.prod(spaces["obs_shape"]))
        self.drift, dimensions = torch.zeros(()), int(self.model.dynamics.dimensions)
        features = self.model.dynamics.features(torch.zeros(1, dimensions)).shape[-1]
        self.posterior = Posterior(features, dimensions, prior)

    def initial_state(self, batch: int) -> State:
        """Of the exploration, and what the agent expects to see (`modules.active_dynamics.state_estimator`)."""
        explore = self.exploration.initial_state(batch, len(self.low))
        moved = {f"explore/{name}": leaf.to(self.device) for name, leaf in explore.items()}
        return self.tracker.initial_state(batch, self.device) | moved

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """What the exploration decides with, standard normal."""
        size = self.exploration.noise_size(len(self.low))
        return torch.randn(*shape, size, generator=generator, device=generator.device)

    def act(
        self,
        obs: Tensor,
        state: State,
        reset: Tensor,
        *,
        mask: Tensor | None = None,
        noise: Tensor | None = None,
        greedy: bool = False,
    ) -> tuple[Decision, State]:
        """Predict, correct, choose. Greedy explores too, around the last plan only; without noise, random is zero."""
        knowledge = self.knowledge()
        belief, kept = self.tracker.correct(obs.flatten(1), state, reset)
        explore = {
            name.removeprefix("explore/"): leaf.masked_fill(reset.view(-1, *[1] * (leaf.dim() - 1)), 0)
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
        return Decision(action, extras), expected | kept | explored

    def encoded(self, steps: Sequences) -> Tensor:
        """The encoder's means `[L+1, N, D]` of all observations of sequences."""
        counts, begins = rows_that_count(steps.joined)
        return self.model.encode(steps.obs.flatten(2), begins | ~counts)[0]

    def knowledge(self) -> Knowledge:
        """What acquisitions may look at."""
        covariance = self.posterior.covariance.to(self.low.dtype)
        return Knowledge(self.model, covariance, self.regression_noise(), self.low, self.high)

    def regression_noise(self) -> Tensor:
        """Variance of what the regression sees: a step's process noise in units of the field, mean over dimensions."""
        dynamics = self.model.dynamics
        return dynamics.variance.mean() / dynamics.gain**2

    def setup(self, stage: str) -> None:
        """Refuse to regress where that would not be exact, and to act on what is yet to come."""
        super().setup(stage)
        if stage == "fit":
            check_dynamics(self.model, self.data)

    def prepare(self, experience: Any) -> tuple[Lesson | None, Sequences]:
        """Features and targets of what is to be regressed on: the newest steps, or all when it is time; and pieces."""
        steps = cast(SequenceExperience, experience)
        if not len(steps.chunks.joined):
            return self.lesson(cast(Sequences, steps.fresh)), steps.chunks
        if steps.history is None or self.updates // self.data.updates % self.refit_every:
            return None, steps.chunks
        latent = self.encoded(steps.history)
        if not self.model.observed:
            self.measure_drift_(steps, latent[1:][steps.history.joined])
        return self.lesson(steps.history, latent), steps.chunks

    def lesson(self, steps: Sequences, latent: Tensor | None = None) -> Lesson:
        """The regression on some steps, whose observations are encoded here unless they are already."""
        return lesson_of(self.model, self.encoded(steps) if latent is None else latent, steps)

    def measure_drift_(self, steps: SequenceExperience, remembered: Tensor) -> None:
        """How far beliefs, kept step by step, lie from a fresh look at what was seen, in standard deviations of it.

        Args:
            remembered: a look at all that is remembered, `[M, D]`.
        """
        fresh = self.encoded(cast(Sequences, steps.fresh))[:-1]
        self.drift = (steps.extras["latent"] - fresh).abs().mean() / remembered.std(0).mean()

    def update(self, batch: tuple[Lesson | None, Sequences]) -> Scalars:
        """Regress, or step down the loss and regress anew."""
        lesson, chunks = batch
        if len(chunks.joined):
            if self.updates == 0:
                self.model.start_(chunks.obs[:, 1:].flatten(3), chunks.joined)
            draws = [self.model.draws(joined, self.minibatch_generator) for joined in chunks.joined]
            losses = self.joints["update"](chunks, tuple(draws))
            self.updates += len(chunks.joined)
            if lesson is not None:
                self.posterior.refit_(*lesson, self.regression_noise().double())
            return Scalars(tuple(f"dynamics/{name}" for name in ("loss", "grad_norm", *self.model.measures)), losses)
        assert lesson is not None
        if self.updates % REFACTOR == REFACTOR - 1:
            self.posterior.refactor_()
        self.updates += 1
        gained = self.joints["update"](lesson.features, lesson.target)
        return Scalars(("dynamics/information",), gained.unsqueeze(0))

    @torch.no_grad()
    def regress(self, features: Tensor, target: Tensor) -> Tensor:
        """Learn from some steps; the information they carried."""
        gained = self.posterior.observe_(features, target, self.regression_noise().double())
        self.model.dynamics.weight.copy_(self.posterior.mean)
        return gained

    def descend(self, chunks: Sequences, draws: tuple[Any, ...]) -> Tensor:
        """A gradient step on each minibatch; mean loss, gradient norm, and the model's own measures."""
        values = []
        for number, drawn in enumerate(draws):
            piece = Sequences(*(column[number] for column in chunks))
            loss, measured = self.model.loss(piece.obs.flatten(2), piece.action, piece.joined, drawn)
            if novelties := self.novelties:
                latent = self.encoded(piece).detach()
                loss = loss + sum(novelty.error(latent).mean() for novelty in novelties)
            norm = self.optimization.step_if_finite(loss, self.raw_optimizers[0], self.max_grad_norm)
            values.append(torch.cat([torch.stack([loss.detach(), norm]), measured]))
        return torch.stack(values).mean(0)

    def schedule_(self) -> None:
        """The learning rate, and what the model changes over a run."""
        self.schedule_learning_rates_()
        self.model.schedule_(self.progress)

    def measured(self) -> dict[str, float | Tensor]:
        """How far beliefs have drifted, where the state is not observed."""
        return {} if self.model.observed else {"dynamics/drift": self.drift}

    @property
    def novelties(self) -> list[Any]:
        """Acquisitions that learn by themselves what is not new."""
        return [part for part in self.exploration.modules() if hasattr(part, "error")]

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Predict held-out sequences, and the vector field where the true one is known."""
        self.held_out = self.scores(batch)

    test_step = validation_step

    def scores(self, batch: HeldOut) -> dict[str, Tensor]:
        """R2 by name, `r2_k` of k steps ahead and `field_r2`."""
        steps = batch.sequences
        obs = steps.obs.flatten(2)
        latent, control = self.encoded(steps), self.model.action_encoder(steps.action)
        true = obs if batch.mean is None else batch.mean.flatten(2)
        ahead = determinations(
            latent, control, steps.joined, true, step=self.model.dynamics.step, decode=self.model.decode, ahead=AHEAD
        )
        scores = {f"r2_{k}": value for k, value in zip(AHEAD, ahead, strict=True)}
        if batch.grid is not None and batch.field is not None and batch.state is not None:
            self.alignment = None if self.model.observed else affine(latent.flatten(0, 1), batch.state.flatten(0, 1))
            scores["field_r2"] = determination(self.field(batch.grid), batch.field)
        return scores

    def field(self, states: Tensor) -> Tensor:
        """The learned field at true states `[G, D]`, in their coordinates as the last evaluation aligned them."""
        return aligned_field(partial(velocity, self.model.dynamics), states, self.alignment)

    def predicted(self, batch: HeldOut, paths: int, steps: int) -> tuple[Tensor, Tensor]:
        """Paths `[steps + 1, paths, D]` from the first observation alone, and as they were; in true coordinates."""
        pieces = batch.sequences
        latent = self.encoded(pieces)[: steps + 1, :paths]
        control, path = self.model.action_encoder(pieces.action[:steps, :paths]), [latent[0]]
        for t in range(len(latent) - 1):
            path.append(self.model.dynamics.step(path[-1], control[t]))
        lived = latent if batch.state is None else batch.state[: steps + 1, :paths]
        return aligned(torch.stack(path), self.alignment), lived

    def visited(self) -> Tensor:
        """Where the agents have been `[M, D]`, in true coordinates."""
        history = self.data.ring.history()
        return aligned(self.encoded(history)[1:][history.joined], self.alignment)

    def on_validation_epoch_end(self) -> None:
        """Log the evaluation against environment steps; what checkpoints watch goes through Lightning as well."""
        values = averaged(torch.stack(list(self.held_out.values()))).tolist()
        named = {f"dynamics/{name}": value for name, value in zip(self.held_out, values, strict=True)}
        self.log_values(named)
        self.log_dict(named, logger=not self._fitting, sync_dist=ranks() > 1)

    on_test_epoch_end = on_validation_epoch_end

    def make_optimizers(self) -> list[Optimizer]:
        """One, over what the model and acquisitions learn."""
        parts = [self.model, *self.novelties]
        learned = learning(parameter for part in parts for parameter in part.parameters())
        return [Adam(learned, lr=self.learning_rate)]

    def make_joints(self) -> dict[str, Joint[Any]]:
        """`prepare`, and under `update` the regression or the steps of gradient."""
        work = self.descend if self.data.updates else self.regress
        prepare = Joint(self.prepare, self.device, name="prepare", capturable=not self.data.updates)
        return {"prepare": prepare, "update": Joint(work, self.device, name="update", owned=self.owned_tensors)}
