"""Algorithm: what every algorithm of Leyden shares. One level of inheritance, never two."""

from collections.abc import Collection
from typing import Any, Self, cast

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import Optimizer

from datamodules.core.errors import UsageError
from datamodules.core.phase import Joint
from datamodules.core.seeding import restore_generator, run_seed, stream_generator
from datamodules.core.types import ActionKind, Decision, Episodes, Experience, Rollout, Scalars, Spaces, State
from modules.base.checks import check_action_space, check_data, check_minibatches, check_own_optimizers, check_precision
from modules.base.episode_metrics import EvaluationEpisodes
from modules.base.hparams import check_checkpoint, described
from modules.base.lightning_progress import CountingOptimizer, counted, reopen, set_length
from modules.base.metric_logger import TrainingLog
from modules.base.modes import Modes
from modules.base.policy_copy import twin_of
from modules.base.trainer_checks import check_trainer
from modules.functional.schedules import Schedule, scheduled
from modules.networks.preprocessing import BYTE, Module, set_obs_scale_
from modules.optim.distributed import gathered, ranks, summed
from modules.optim.optimizer_group import Optimizers, check_same_optimizers, layout_of

Collected = Rollout | Experience


class Algorithm(LightningModule):
    """A LightningModule that acts, and learns from rollouts; subclasses give `act`, `prepare` and `update`.

    One Trainer batch is a sequence of iterations; an iteration collects (when the batch is iterated), prepares, updates
    and ticks. Optimizers step raw inside `update`; curves go to the loggers against environment steps.

    Args:
        spaces: what the environment shows and takes; linked from the data on the command line.

    Raises: UsageError for actions that it cannot choose.

    Attributes:
        action_kinds: what it can choose; other spaces are refused.
        off_policy: learns from a replay.   corrects_staleness: `prepare` copes with an older policy's rollouts.
        env_steps: valid ones, all ranks together.   updates: optimizer steps.
        earlier_env_steps: those of them taken before this run began, by the agent that it started from.
        latest: the values logged last, by tag, for whoever displays them.   last_log: those of the last training log.
        joints: `prepare` and `update`, which can be compiled and know their running times, while fitting.
        optimization: steps the optimizers in `update`, while fitting.
        written_out: the same by fewer calls (`modules.manual_backward`), while fitting, where that is known; else None.
        minibatch_generator: this rank's source of permutations, while fitting.
        always_eval: names of networks that never learn from a gradient, such as target networks.

    Networks are in eval mode but for `update`, which puts those that learn in train mode (`modules.base.modes`).
    """

    off_policy, corrects_staleness = False, False
    action_kinds: tuple[ActionKind, ...] = ("discrete", "multidiscrete", "binary", "continuous")
    always_eval: tuple[str, ...] = ()
    learning_rate: float
    learning_rate_schedule: Schedule
    joints: dict[str, Joint[Any]]
    optimization: Optimizers
    minibatch_generator: torch.Generator

    def __init__(self, spaces: Spaces):
        super().__init__()
        check_action_space(type(self), spaces)
        self.automatic_optimization = False
        self.spaces, self.joints = spaces, {}
        self.env_steps, self.earlier_env_steps, self.updates = 0, 0, 0
        self.latest: dict[str, float] = {}
        self.last_log: dict[str, float] = {}
        self.training_log = TrainingLog()
        self.evaluation_episodes = EvaluationEpisodes()
        self.written_out: Any = None
        self._rank_state: dict[str, Any] | None = None
        self._saved_optimizers: list[dict[str, Any]] | None = None
        self._modes: Modes | None = None

    def with_obs_scale(self, network: Module) -> Module:
        """Let a network scale observations by the bounds of their space, unless they are normalised. Returns it."""
        high = self.spaces.get("obs_high", BYTE if self.spaces["obs_dtype"] == "uint8" else 1)
        return set_obs_scale_(network, 1.0 if getattr(self, "obs_normalizer", None) is not None else 1.0 / high)

    def initial_state(self, batch: int) -> State:
        """State of the actor at the start of an episode; it is memoryless unless a subclass says otherwise."""
        return {}

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Randomness for decisions of leading dimensions `shape`."""
        raise NotImplementedError

    def act(self, *what: Any, **how: Any) -> tuple[Decision, State]:
        """Decide for every row, given what `datamodules.core.protocols.Actor` says."""
        raise NotImplementedError

    def prepare(self, collected: Any) -> Any:
        """Returns and targets of a rollout, or of transitions from a replay; called without gradient."""
        raise NotImplementedError

    def update(self, batch: Any) -> Scalars:
        """All passes and minibatches over what `prepare` made; metrics stay on the device."""
        raise NotImplementedError

    def make_optimizers(self) -> list[Optimizer]:
        """The optimizers that `update` steps."""
        raise NotImplementedError

    def make_joints(self) -> dict[str, Joint[Any]]:
        """`prepare`, and under `update` what `update` calls for the work itself."""
        raise NotImplementedError

    def write_out(self) -> Any:
        """What is to be `written_out`, made before the joints; None where nothing is known.

        It reads the parameters' memory past their modules: whoever listens to these must be there when a fit begins.
        """
        return None

    def schedule_(self) -> None:
        """Set what changes with `progress`, before an update."""

    def learning_rates(self) -> list[float]:
        """Return the rates that `schedule_learning_rates_` starts at, in the order of `make_optimizers`."""
        return [self.learning_rate] * len(self.raw_optimizers)

    def schedule_learning_rates_(self) -> None:
        """Set the learning rates of the iteration that begins, by `learning_rate_schedule`."""
        kind, progress = self.learning_rate_schedule, self.progress
        *rates, share = (scheduled(kind, start, progress) for start in (*self.learning_rates(), 1.0))
        self.optimization.set_learning_rates_(rates, share)

    def absorb_(self, collected: Any) -> None:
        """Merge what was collected into running statistics, after the update that used the old ones."""

    @property
    def modes(self) -> Modes:
        """What switches the networks between eval and train mode."""
        if self._modes is None:
            self._modes = Modes(self, [getattr(self, name) for name in self.always_eval])
        return self._modes

    @property
    def data(self) -> Any:
        """The DataModule of this run."""
        return cast(Any, self.trainer).datamodule

    @property
    def stale(self) -> bool:
        """Whether rollouts are of an older policy than the one that learns."""
        return self._trainer is not None and getattr(self.data, "staleness", 0) > 0

    @property
    def progress(self) -> float:
        """Share of the run's environment steps that are taken, in [0, 1]."""
        return float(self.data.progress)

    def training_step(self, batch: Collection[Collected], batch_idx: int) -> None:
        """Learn from every iteration of the batch."""
        for collected in counted(self.trainer, batch):
            self.tick(collected, self.iterate(collected))

    def iterate(self, collected: Collected) -> Scalars | None:
        """One iteration's learning; no metrics where there is too little to learn from yet."""
        self.schedule_()
        metrics = None
        if collected.ready:
            with torch.no_grad():
                prepared = self.joints["prepare"](collected)
            with self.modes.train():
                metrics = self.update(prepared)
        self.absorb_(collected)
        return metrics

    def tick(self, collected: Collected, metrics: Scalars | None) -> None:
        """Count the iteration; log when it is time."""
        self.finish_log(wait=False)
        steps = collected.env_steps
        self.env_steps += steps if ranks() == 1 else int(summed(torch.tensor(steps, device=self.device)))
        self.training_log.update(collected.episodes, metrics)
        cast(list[Any], self.optimizers())[-1].step()
        set_length(self.trainer, self.data.iterations)
        if self.global_step % cast(Any, self.trainer).log_every_n_steps == 0 or self.progress >= 1:
            self.log_training()

    def step(self, loss: Tensor, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """One raw optimizer step, gradients clipped by their global norm, which is returned (see `Optimizers.step`)."""
        return self.optimization.step(loss, optimizer, max_grad_norm)

    @property
    def raw_optimizers(self) -> list[Optimizer]:
        """The optimizers that `update` steps, in the order of `make_optimizers`, while fitting."""
        return self.optimization.each

    def owned_tensors(self) -> list[Tensor]:
        """List what updates change for good: parameters, buffers and the optimizers' states, which are made first."""
        self.optimization.make_state_()
        return [*self.parameters(), *self.buffers(), *self.optimization.tensors]

    def log_training(self) -> None:
        """Log the metrics' means since the last log, and the training episodes'; a GPU's when they have arrived."""
        rate = self.optimization.groups[0]["lr"]
        values = {"train/learning_rate": rate, **self.measured(), **self.data.measured()}
        self.training_log.begin(self.env_steps, values)
        if self.device.type == "cpu" or self.progress >= 1:
            self.finish_log()

    def measured(self) -> dict[str, float | Tensor]:
        """Values to log as they are, by tag."""
        return {}

    def finish_log(self, wait: bool = True) -> None:
        """Write what `log_training` began: all of it, or what can be had without waiting."""
        for values, env_steps in self.training_log.finished(wait):
            self.last_log = values
            self.log_values(values, env_steps)

    def log_values(self, values: dict[str, float], env_steps: int | None = None) -> None:
        """Send values by tag to every logger, against environment steps (those of now), and keep them in `latest`."""
        self.latest |= values
        for logger in self.trainer.loggers if values else ():
            logger.log_metrics(values, step=self.env_steps if env_steps is None else env_steps)

    def on_train_end(self) -> None:
        """Write what is left to log."""
        self.finish_log()

    on_validation_start = on_train_end

    def validation_step(self, batch: Episodes, batch_idx: int) -> None:
        """Add whole evaluation episodes."""
        self.evaluation_episodes.update(batch)

    def on_validation_epoch_end(self) -> None:
        """Log the evaluation against environment steps; what checkpoints watch goes through Lightning as well."""
        values = {f"eval/{name}": value for name, value in self.evaluation_episodes.compute().items()}
        self.evaluation_episodes.reset()
        self.log_values(values)
        self.log_dict(values, logger=not self._fitting, sync_dist=ranks() > 1)

    test_step = validation_step
    on_test_epoch_end = on_validation_epoch_end

    def predict_step(self, batch: Episodes, batch_idx: int) -> Episodes:
        """Whole episodes with their trajectories, as the dataset played them."""
        return batch

    @property
    def _fitting(self) -> bool:
        return self._trainer is not None and self.trainer.state.fn == TrainerFn.FITTING

    @classmethod
    def load_from_checkpoint(
        cls, checkpoint_path: Any, *args: Any, trusted: tuple[str, ...] = (), **kwargs: Any
    ) -> Any:
        """Make the module of a local checkpoint again, in eval mode; only what this package ships is imported or run.

        Args: as Lightning's; `trusted` are packages of yours that it may name.   Raises: UsageError for other names.
        """
        check_checkpoint(checkpoint_path, (cls.__module__.partition(".")[0], *trusted))
        model = super().load_from_checkpoint(checkpoint_path, *args, **{**kwargs, "weights_only": True})
        model.modes.eval_()
        return model.eval()

    def on_train_start(self) -> None:
        """Put the networks in eval mode, and give the optimizers the options of the configuration back.

        A checkpoint brings options of its own. Hooks may have been registered since the fit began.
        """
        self.modes.eval_()
        if self.joints:
            self.optimization.restore_options_()
        if self.written_out is not None:
            self.written_out = self.write_out()
            if (actor := self.data.collector.actor) is not self:
                self.shorten(actor)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The algorithm's optimizers, then the one that counts iterations."""
        self.optimization = Optimizers(self.make_optimizers())
        return [*self.optimization.each, CountingOptimizer()]

    def setup(self, stage: str) -> None:
        """Refuse data that cannot be learned from, and minibatches and a precision that cannot be had."""
        check_data(self, self.data)
        if stage == "fit":
            self.earlier_env_steps = self.env_steps
            check_trainer(self.trainer, self, self.data)
            check_minibatches(self, self.data)
            check_precision(str(self.trainer.precision))

    def on_fit_start(self) -> None:
        """Make the joints, and what each rank draws for itself, on the module's device.

        Raises: UsageError for optimizers that are not those of `make_optimizers`, or not those of the checkpoint.
        """
        self.training = True
        self.modes.begin()
        check_own_optimizers(self)
        if self._saved_optimizers is not None:
            check_same_optimizers(self._saved_optimizers, [layout_of(each) for each in self.raw_optimizers])
        self.optimization.take_scaler_(self.trainer.precision_plugin)
        self.written_out = self.write_out()
        self.joints = self.make_joints()
        self.minibatch_generator = stream_generator(run_seed(), self.global_rank, "minibatch", self.device)
        if self._rank_state is not None:
            self.load_rank_state(self._rank_state)

    def on_fit_end(self) -> None:
        """Give the precision its scaler back; whatever comes next may change the networks."""
        self.written_out = None
        if self.joints:
            self.optimization.give_scaler_back_(self.trainer.precision_plugin)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Where parameters move or become others, what was written out no longer reads them."""
        self.written_out = None
        return super()._apply(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """A copy decides by its own parameters, and has nothing to learn with."""
        return super().__getstate__() | {"written_out": None, "joints": {}}

    def twin(self) -> Self:
        """Return a copy in eval mode with its own parameters and buffers; hooks and other attributes are shared."""
        twin = twin_of(self)
        twin._modes = None
        twin.modes.eval_()
        return twin

    def shorten(self, twin: Self) -> None:
        """Let a copy that only acts do so by few calls, where this module does."""
        twin.written_out = None

    def rank_state(self) -> dict[str, Any]:
        """What this rank alone holds, as tensors and plain types."""
        self.finish_log()
        scale = self.optimization.scaler.state_dict() if self.optimization.scaler is not None else {}
        log = self.training_log.remembered()
        return {"minibatch": self.minibatch_generator.get_state(), "scale": scale, **log}

    def load_rank_state(self, state: dict[str, Any]) -> None:
        """Continue from `rank_state`."""
        restore_generator(self.minibatch_generator, state["minibatch"])
        self.training_log.remember(state, self.device)
        if self.optimization.scaler is not None and state.get("scale"):
            self.optimization.scaler.load_state_dict(state["scale"])

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add spaces, counters and the state of every rank; called on all ranks."""
        checkpoint["hyper_parameters"] = described(checkpoint.get("hyper_parameters", {}), type(self))
        checkpoint["spaces"] = self.spaces
        names = ("env_steps", "earlier_env_steps", "updates")
        checkpoint["counters"] = {name: getattr(self, name) for name in names}
        if self.joints:
            checkpoint["ranks"] = gathered(self.rank_state())
            checkpoint["optimizers"] = [layout_of(each) for each in self.raw_optimizers]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take back counters and, if the number of ranks is the same, this rank's state."""
        for name, value in checkpoint["counters"].items():
            setattr(self, name, value)
        if not self._fitting:
            return
        if self.data.env_steps_taken >= self.data.total_env_steps:
            raise UsageError(f"This run is finished, at {self.env_steps} env steps: raise data.total_env_steps.")
        self._saved_optimizers = checkpoint.get("optimizers")
        everyone = checkpoint.get("ranks", [])
        if len(everyone) == ranks():
            self._rank_state = everyone[self.global_rank]
        reopen(checkpoint["loops"])
