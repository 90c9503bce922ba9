"""On-policy data: every batch is collected with the weights as they are (or were), learned from once, and forgotten."""

from typing import Any, cast

from torch import Tensor

from datamodules.base import Backend, EnvironmentData, OnEnvError, require_positive
from datamodules.collect.collector import Collector
from datamodules.collect.iteration_dataset import IterationDataset
from datamodules.collect.prefetching import Ahead
from datamodules.core.errors import UsageError
from datamodules.core.protocols import Actor
from datamodules.core.pytree import mapped
from datamodules.core.required_values import require_values
from datamodules.core.types import Rollout


class RolloutDataset(IterationDataset):
    """Rollouts of a collector, which may work ahead."""

    def __init__(self, collector: Collector, iterations: int, trainer: Any, ahead: Ahead | None = None):
        super().__init__(iterations, trainer)
        self.collector, self.ahead = collector, ahead

    def collect(self) -> Rollout:
        """The next rollout."""
        if self.ahead is None:
            return self.collector.collect()
        learned, ends = self.trainer.global_step, (self.trainer.num_training_batches, self.trainer.max_steps)
        return self.ahead.collect(learned, last=learned + 1 in ends)


class RolloutData(EnvironmentData):
    """Rollouts of `horizon` steps of `num_envs` environments a rank, for on-policy algorithms.

    Args:
        env: a Gymnasium id (`CartPole-v1`, `module:Id`) or the dotted path of an environment class.
        env_kwargs: keyword arguments of the environment.
        backend: auto | device (on-device tensors) | sync | async (a process each) | vector (the id's own entry point)
            | pool (many environments in each of a few processes) | envpool (EnvPool's environments, in threads of C++).
        num_envs: environments on each rank.
        horizon: steps of every environment in a rollout.
        total_env_steps: the length of the run in environment steps, all ranks together, rounded up to whole iterations.
        staleness: iterations that the policy which collects is behind the one that learns. 0 collects, then learns; 1
            collects the next rollout while learning from the last, for algorithms that correct for it (PPO): a step
            teaches a little less, and is had earlier where environments are waited for. On a CPU these are then stepped
            in another thread than they were made in.
        eval_episodes: episodes of an evaluation, all ranks together.
        eval_greedy: evaluate the policy's mode (True) or sample from it.
        eval_env_kwargs: changes to `env_kwargs` for evaluation only.
        eval_max_steps: an evaluation episode this long is truncated there, with a warning; the row plays its next one.
        iterations_per_batch: iterations that Lightning runs as one batch; more than 1 saves its overhead (0.3 ms a
            batch) where iterations take a few ms, and is refused beside callbacks that act on every batch.
        env_timeout: seconds that an environment in a process (async, pool) may take for its start, a reset or a step; a
            longer one is named with its action and ends the run. null: 300 there; the other backends have none.
        on_env_error: what follows where an environment in a process (async, pool) raises, dies or exceeds
            `env_timeout`: stop ends the run, restart makes it anew and drops its episode, up to max(3, num_envs) times
            within 1,000 env steps.

    Raises: UsageError for values that cannot be, and for environments that cannot be made.
    """

    def __init__(
        self,
        env: str,
        env_kwargs: dict[str, Any] | None = None,
        backend: Backend = "auto",
        num_envs: int = 8,
        horizon: int = 128,
        total_env_steps: int = 100_000,
        staleness: int = 0,
        eval_episodes: int = 32,
        eval_greedy: bool = True,
        eval_env_kwargs: dict[str, Any] | None = None,
        eval_max_steps: int = 20_000,
        iterations_per_batch: int = 1,
        env_timeout: float | None = None,
        on_env_error: OnEnvError = "stop",
    ):
        require_values("data", RolloutData, locals())
        super().__init__(
            env,
            env_kwargs,
            backend,
            num_envs,
            total_env_steps,
            eval_episodes,
            eval_greedy,
            eval_env_kwargs,
            eval_max_steps,
            iterations_per_batch,
            env_timeout,
            on_env_error,
        )
        require_positive("horizon", horizon)
        if staleness not in (0, 1):
            raise UsageError(
                f"data.staleness is {staleness}; give 0 (collect, then learn) or 1 (collect the next while learning)."
            )
        self.horizon, self.staleness = horizon, staleness
        self._restored_ahead: dict[str, Any] | None = None
        self.save_hyperparameters()

    @property
    def rows_per_rollout(self) -> int:
        """Transitions in one rank's rollout."""
        return self.horizon * self.num_envs * self.spaces["agents"]

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps one iteration adds, all ranks together."""
        return self.horizon * self.num_envs * self.world_size

    @property
    def beside(self) -> tuple[str, ...]:
        """Joints that work while others do."""
        return ("collect",) * self.staleness

    def train_dataloader(self) -> RolloutDataset:
        """The loop: environments stepped with the module's own policy, or with a copy of it that works ahead."""
        assert self.trainer is not None
        collector, ahead = self.make_collector(self.horizon), None
        if self.staleness:
            ahead = Ahead(collector, self._actor, self.trainer.precision_plugin.forward_context)
            if self._restored_ahead is not None:
                ahead.load_state_dict(self._restored_ahead)
        self._restored_ahead = None
        self.dataset = RolloutDataset(collector, self.iterations, self.trainer, ahead)
        return self.dataset

    @property
    def _ahead(self) -> Ahead | None:
        return None if self.collector is None or self.dataset is None else self.dataset.ahead

    def _collecting(self) -> Actor:
        return cast(Any, self._actor).twin() if self.staleness else self._actor

    def measured(self) -> dict[str, Any]:
        """Adds how far behind the policy was that collected the last rollout, where that is not 0 by construction."""
        return super().measured() | ({} if self._ahead is None else {"rollout/policy_lag": self._ahead.lag})

    def rank_state(self) -> dict[str, Any]:
        """That of the rollout under way, where one is."""
        return super().rank_state() if self._ahead is None else mapped(Tensor.cpu, self._ahead.origin())

    def state_dict(self) -> dict[str, Any]:
        """Adds the weights that collect ahead."""
        ahead = None if self.dataset is None else self.dataset.ahead
        return super().state_dict() | ({} if ahead is None else {"ahead": mapped(Tensor.cpu, ahead.state_dict())})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep what was collected ahead with, if this rank goes on from there."""
        super().load_state_dict(state_dict)
        self._restored_ahead = None if self._restored is None else state_dict.get("ahead")

    def settle(self) -> None:
        """Wait for the rollout under way."""
        if self._ahead is not None:
            self._ahead.settle()

    def on_exception(self, exception: BaseException) -> None:
        """End the thread that collects ahead, but wait for no environment that takes its time."""
        if self._ahead is not None:
            self._ahead.close(seconds=1.0)
        super().on_exception(exception)

    def teardown(self, stage: str) -> None:
        """End the thread that collects ahead, then close the environments."""
        if self._ahead is not None and stage == "fit":
            self._ahead.close()
        super().teardown(stage)
