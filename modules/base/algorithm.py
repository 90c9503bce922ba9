"""Base class of all algorithms."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Self, cast

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import Optimizer

from datamodules.core.errors import ConfigurationError
from datamodules.core.exports import MODEL_ALLOWED
from datamodules.core.phase import Phase
from datamodules.core.seeding import derive_generator, global_seed, restore_generator
from datamodules.core.types import (
    ActionType,
    EpisodeBatch,
    MetricVector,
    OffPolicyIteration,
    PolicyInput,
    PolicyOutput,
    Rollout,
    SpaceSpec,
    State,
)
from modules.base.checks import (
    check_action_space,
    check_compatible,
    check_minibatches,
    check_own_optimizers,
    check_precision,
)
from modules.base.episode_metrics import EvaluationStats
from modules.base.hparams import checked_loading, objects_left_out, to_plain
from modules.base.lightning_progress import CountingOptimizer, iterate_counted, mark_epoch_unfinished, set_length
from modules.base.metric_logger import MetricLogger
from modules.base.modes import Modes
from modules.base.policy_copy import copy_policy
from modules.base.trainer_checks import check_trainer
from modules.functional.schedules import Schedule, schedule_value
from modules.networks.multi_input import Module, set_scales_
from modules.optim.distributed import all_gather_object, all_reduce_sum, host_all_reduce_sum, world_size
from modules.optim.optimizer_group import OptimizerGroup, check_same_optimizers, layout_of

Collected = Rollout | OffPolicyIteration


class Algorithm(LightningModule):
    """Base of algorithms: a LightningModule that acts and learns; subclasses implement `act`, `prepare` and `update`.

    One Trainer batch is a sequence of iterations; an iteration collects (when the batch is iterated), prepares, updates
    and logs. Optimizers are stepped inside `update`; metrics are logged against environment steps.

    Args:
        spaces: observation and action space; linked from the data on the command line.

    Raises: ConfigurationError for an unsupported action space.

    Attributes:
        action_types: supported action spaces.
        off_policy: whether it learns from a replay buffer.
        supports_policy_lag: whether `prepare` corrects rollouts of an older policy.
        env_steps: valid environment steps, all ranks together, counted once for all agents of an environment.
        agent_steps: valid steps of all agents, if there are several.   updates: optimizer steps.
        earlier_env_steps: `env_steps` at the start of this run, those of the checkpoint that it started from.
        last_logged: the last value of every tag.   last_training_log: values of the last training log.
        phases: timed, optionally compiled `prepare` and `update`, while fitting.
        optim: optimizers stepped in `update`, while fitting.
        replaced_methods: names of the methods that `replace_methods_` has replaced.
        minibatch_generator: this rank's generator of permutations, while fitting.
        always_eval: names of networks without gradient updates, such as target networks.

    Networks are in eval mode except in `update`, where trained ones are in train mode (`modules.base.modes`).
    """

    off_policy, supports_policy_lag = False, False
    action_types: tuple[ActionType, ...] = ("discrete", "multidiscrete", "binary", "continuous")
    always_eval: tuple[str, ...] = ()
    learning_rate: float
    learning_rate_schedule: Schedule
    phases: dict[str, Phase[Any]]
    optim: OptimizerGroup
    minibatch_generator: torch.Generator

    def __init__(self, spaces: SpaceSpec):
        super().__init__()
        check_action_space(type(self), spaces)
        self.automatic_optimization = False
        self.spaces, self.phases = spaces, {}
        self.env_steps, self.earlier_env_steps, self.updates = 0, 0, 0
        self.agent_steps: int | Tensor = 0
        self.last_logged: dict[str, float] = {}
        self.last_training_log: dict[str, float] = {}
        self.metric_logger = MetricLogger()
        self.evaluation_episodes = EvaluationStats()
        self.replaced_methods: tuple[str, ...] = ()
        self._rank_state: dict[str, Any] | None = None
        self._saved_optimizers: list[dict[str, Any]] | None = None
        self._modes: Modes | None = None

    def with_obs_scale(self, network: Module) -> Module:
        """Set a network's observation scale by the space's bounds, unless observations are normalised; return it."""
        return set_scales_(network, self.spaces, getattr(self, "obs_normalizer", None) is not None)

    def initial_state(self, batch: int) -> State:
        """Return the actor's state at the start of an episode; `{}` if not recurrent, the default."""
        return {}

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the random numbers of `act` for rows of shape `shape`."""
        raise NotImplementedError

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Select an action for every row (see `datamodules.core.protocols.Policy.act`)."""
        raise NotImplementedError

    def action_details(self, inputs: PolicyInput, output: PolicyOutput, state: State) -> dict[str, Tensor]:
        """Return what explains an action: `value` `[B]`, `probabilities`, `q_values`, `std`, `latent` `[B, ...]`."""
        return {}

    def prepare(self, collected: Any) -> Any:
        """Compute returns and targets of a rollout, or of transitions from a replay; called without gradient."""
        raise NotImplementedError

    def update(self, batch: Any) -> MetricVector:
        """Train on all minibatches of the prepared batch; return metrics on the device."""
        raise NotImplementedError

    def build_optimizers(self) -> list[Optimizer]:
        """Return the optimizers that `update` steps."""
        raise NotImplementedError

    def configure_phases(self) -> dict[str, Phase[Any]]:
        """Return the phases `prepare` and `update`, the latter being the computation that `update` calls."""
        raise NotImplementedError

    def update_schedules(self) -> None:
        """Set the settings that change with `progress`, before an update."""

    def learning_rates(self) -> list[float]:
        """Return the initial rates of `schedule_learning_rates_`, in the order of `build_optimizers`."""
        return [self.learning_rate] * len(self.raw_optimizers)

    def schedule_learning_rates_(self, factor: float = 1.0) -> None:
        """Set the learning rates of the iteration by `learning_rate_schedule`, times a factor."""
        kind, progress = self.learning_rate_schedule, self.progress
        rates = [factor * schedule_value(kind, start, progress) for start in (*self.learning_rates(), 1.0)]
        self.optim.set_learning_rates_(rates[:-1], factor=rates[-1])

    def after_update(self, collected: Any) -> None:
        """Update running statistics and priorities; called in every iteration, also in one without an update."""

    @property
    def modes(self) -> Modes:
        """Return the switch between eval and train mode."""
        if self._modes is None:
            self._modes = Modes(self, [getattr(self, name) for name in self.always_eval])
        return self._modes

    @property
    def data(self) -> Any:
        """Return the DataModule of this run."""
        return cast(Any, self.trainer).datamodule

    @property
    def has_policy_lag(self) -> bool:
        """Return whether rollouts are collected by an older policy than the current one."""
        return self._trainer is not None and getattr(self.data, "policy_lag", 0) > 0

    @property
    def progress(self) -> float:
        """Return the fraction of the run's environment steps taken, in [0, 1]."""
        return float(self.data.progress)

    def training_step(self, batch: Collection[Collected], batch_idx: int) -> None:
        """Train on every iteration of the batch."""
        for collected in iterate_counted(self.trainer, batch):
            self.end_iteration(collected, self.run_iteration(collected))

    def run_iteration(self, collected: Collected) -> MetricVector | None:
        """Update on one iteration's data; return its metrics, None if there is too little data."""
        self.update_schedules()
        metrics = None
        if collected.is_ready:
            with torch.no_grad():
                prepared = self.phases["prepare"](collected)
            with self.modes.train():
                metrics = self.update(prepared)
        self.after_update(collected)
        return metrics

    def end_iteration(self, collected: Collected, metrics: MetricVector | None) -> None:
        """Count the iteration; log every `log_every_n_steps`."""
        self.finish_log(wait=False)
        self.env_steps += host_all_reduce_sum(collected.env_steps)
        if collected.agent_steps is not None:
            self.agent_steps = all_reduce_sum(collected.agent_steps) + self.agent_steps
        self.metric_logger.update(collected.episodes, metrics)
        cast(list[Any], self.optimizers())[-1].step()
        set_length(self.trainer, self.data.iterations)
        if self.global_step % cast(Any, self.trainer).log_every_n_steps == 0 or self.progress >= 1:
            self.log_training()

    def step(self, loss: Tensor, optimizer: Optimizer, max_grad_norm: float) -> Tensor:
        """Take one optimizer step, gradients clipped by their global norm; return the norm (`OptimizerGroup.step`)."""
        return self.optim.step(loss, optimizer, max_grad_norm)

    @property
    def raw_optimizers(self) -> list[Optimizer]:
        """Return the optimizers that `update` steps, in the order of `build_optimizers`, while fitting."""
        return self.optim.each

    def mutated_tensors(self) -> list[Tensor]:
        """Return the tensors that updates change: parameters, buffers and optimizer states, which are created first."""
        self.optim.make_state_()
        return [*self.parameters(), *self.buffers(), *self.optim.tensors]

    def log_training(self) -> None:
        """Log the means of metrics and training episodes since the last log; on a GPU once they have arrived."""
        rate = self.optim.groups[0]["lr"]
        values = {"train/learning_rate": rate, **self.extra_metrics(), **self.data.extra_metrics()}
        if self.spaces["num_agents"] > 1:
            values["rollout/agent_steps"] = self.agent_steps
        self.metric_logger.start_transfer(self.env_steps, values)
        if self.device.type == "cpu" or self.progress >= 1:
            self.finish_log()

    def extra_metrics(self) -> dict[str, float | Tensor]:
        """Return additional values to log, by tag."""
        return {}

    def finish_log(self, wait: bool = True) -> None:
        """Log the completed transfers of `log_training`; wait for all of them if `wait`."""
        for values, env_steps in self.metric_logger.completed(wait):
            self.last_training_log = values
            self.log_values(values, env_steps)

    def log_values(self, values: dict[str, float], env_steps: int | None = None) -> None:
        """Log values by tag to every logger, against the given or the current env steps; keep them in `last_logged`."""
        self.last_logged |= values
        for logger in self.trainer.loggers if values else ():
            logger.log_metrics(values, step=self.env_steps if env_steps is None else env_steps)

    def on_train_end(self) -> None:
        """Log the pending values."""
        self.finish_log()

    on_validation_start = on_train_end

    def validation_step(self, batch: EpisodeBatch, batch_idx: int) -> None:
        """Add whole evaluation episodes."""
        self.evaluation_episodes.update(batch)

    def on_validation_epoch_end(self) -> None:
        """Log the evaluation against environment steps; values that checkpoints monitor also go through Lightning."""
        values = {f"eval/{name}": value for name, value in self.evaluation_episodes.compute().items()}
        self.evaluation_episodes.reset()
        self.log_values(values)
        self.log_dict(values, logger=not self._fitting, sync_dist=world_size() > 1)

    test_step = validation_step
    on_test_epoch_end = on_validation_epoch_end

    def predict_step(self, batch: EpisodeBatch, batch_idx: int) -> EpisodeBatch:
        """Return whole episodes with their trajectories, as the dataset played them."""
        return batch

    @property
    def _fitting(self) -> bool:
        return self._trainer is not None and self.trainer.state.fn == TrainerFn.FITTING

    @classmethod
    def load_from_checkpoint(
        cls, checkpoint_path: Any, *args: Any, trusted: tuple[str, ...] = (), **kwargs: Any
    ) -> Any:
        """Load the module from a local checkpoint, in eval mode; only classes of this package may be imported.

        Args: those of Lightning; `trusted` names further packages that may be imported, others are refused.
        """
        own_package = {cls.__module__.partition(".")[0]}.difference(MODEL_ALLOWED)
        with checked_loading(checkpoint_path, (*own_package, *trusted), kwargs, cls):
            model = super().load_from_checkpoint(checkpoint_path, *args, **{**kwargs, "weights_only": True})
        model.modes.eval_()
        return model.eval()

    def on_train_start(self) -> None:
        """Put the networks in eval mode, and restore the configuration's optimizer options over a checkpoint's."""
        self.modes.eval_()
        if self.phases:
            self.optim.restore_options_()

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return the algorithm's optimizers, then the one that counts iterations."""
        self.optim = OptimizerGroup(self.build_optimizers(), self)
        return [*self.optim.each, CountingOptimizer()]

    def setup(self, stage: str) -> None:
        """Check the data and, before a fit, Trainer, minibatches and precision."""
        check_compatible(self, self.data)
        if stage == "fit":
            self.earlier_env_steps = self.env_steps
            check_trainer(self.trainer, self, self.data)
            check_minibatches(self, self.data)
            check_precision(str(self.trainer.precision))

    def on_fit_start(self) -> None:
        """Create the phases and this rank's generators, on the module's device.

        Raises: ConfigurationError for optimizers other than those of `build_optimizers` or of the checkpoint.
        """
        self.training = True
        self.modes.begin()
        check_own_optimizers(self)
        if self._saved_optimizers is not None:
            check_same_optimizers(self._saved_optimizers, [layout_of(each) for each in self.raw_optimizers])
        self.optim.detach_scaler_(self.trainer.precision_plugin)
        self.phases = self.configure_phases()
        self.minibatch_generator = derive_generator(global_seed(), self.global_rank, "minibatch", self.device)
        if self._rank_state is not None:
            self.load_rank_state_dict(self._rank_state)

    def on_fit_end(self) -> None:
        """Give the precision plugin its scaler back."""
        if self.phases:
            self.optim.restore_scaler_(self.trainer.precision_plugin)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Restore replaced methods, which may hold the old parameters, then move or convert these."""
        self.restore_methods_()
        return super()._apply(*args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without replaced methods and phases, which hold the original's parameters."""
        state = {name: value for name, value in super().__getstate__().items() if name not in self.replaced_methods}
        return state | {"replaced_methods": (), "phases": {}}

    def replace_methods_(self, methods: Mapping[str, Callable[..., Any]]) -> None:
        """Replace methods of this instance, by name, until they are restored or the module is moved or converted.

        Copies have the methods of the class.
        """
        self.restore_methods_()
        vars(self).update(methods)
        self.replaced_methods = tuple(methods)

    def restore_methods_(self) -> None:
        """Give this instance the methods of its class again."""
        for name in self.replaced_methods:
            vars(self).pop(name, None)
        self.replaced_methods = ()

    def policy_copy(self) -> Self:
        """Return a copy in eval mode with its own parameters and buffers; hooks and other attributes are shared."""
        policy_copy = copy_policy(self)
        policy_copy._modes = None
        policy_copy.modes.eval_()
        return policy_copy

    def rank_state_dict(self) -> dict[str, Any]:
        """Return the state of this rank only, as tensors and plain types."""
        self.finish_log()
        scale = self.optim.scaler.state_dict() if self.optim.scaler is not None else {}
        log = self.metric_logger.state_dict()
        return {"minibatch": self.minibatch_generator.get_state(), "scale": scale, **log}

    def load_rank_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state saved by `rank_state_dict`."""
        restore_generator(self.minibatch_generator, state["minibatch"])
        self.metric_logger.load_state_dict(state, self.device)
        if self.optim.scaler is not None and state.get("scale"):
            self.optim.scaler.load_state_dict(state["scale"])

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add spaces, counters and the state of every rank; called on all ranks."""
        checkpoint |= {"spaces": self.spaces, "objects": objects_left_out(self.hparams, type(self))}
        for name, kind in (("hyper_parameters", type(self)), ("datamodule_hyper_parameters", type(self.data))):
            checkpoint[name] = to_plain(checkpoint.get(name, {}), kind)
        names = ("env_steps", "earlier_env_steps", "agent_steps", "updates")
        checkpoint["counters"] = {name: int(getattr(self, name)) for name in names}
        if self.phases:
            checkpoint["ranks"] = all_gather_object(self.rank_state_dict())
            checkpoint["optimizers"] = [layout_of(each) for each in self.raw_optimizers]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore counters and, if the number of ranks is the same, this rank's state."""
        for name, value in checkpoint["counters"].items():
            setattr(self, name, value)
        if not self._fitting:
            return
        if self.data.env_steps_taken >= self.data.total_env_steps:
            raise ConfigurationError(
                f"This run is finished, at {self.env_steps} env steps: raise data.total_env_steps."
            )
        self._saved_optimizers = checkpoint.get("optimizers")
        rank_states = checkpoint.get("ranks", [])
        if len(rank_states) == world_size():
            self._rank_state = rank_states[self.global_rank]
        mark_epoch_unfinished(checkpoint["loops"])
