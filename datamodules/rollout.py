"""On-policy data: every batch is collected with the weights as they are, learned from once, and forgotten."""

from typing import Any

from datamodules.collect import Collector
from datamodules.data import Backend, EnvironmentData, require_positive
from datamodules.iterations import IterationDataset
from datamodules.types import Rollout


class RolloutDataset(IterationDataset):
    """Rollouts of a collector."""

    def __init__(self, collector: Collector, iterations: int, trainer: Any):
        super().__init__(iterations, trainer)
        self.collector = collector

    def collect(self) -> Rollout:
        """The next rollout."""
        return self.collector.collect()


class RolloutData(EnvironmentData):
    """Rollouts of `horizon` steps of `num_envs` environments a rank, for on-policy algorithms.

    Args:
        env: a Gymnasium id (`CartPole-v1`, `module:Id`) or the dotted path of an environment class.
        env_kwargs: keyword arguments of the environment.
        backend: auto | device (on-device tensors) | sync | async (a process each) | vector (the id's own entry point)
            | pool (many environments in each of a few processes).
        num_envs: environments on each rank.
        horizon: steps of every environment in a rollout.
        total_env_steps: the length of the run in environment steps, all ranks together, rounded up to whole iterations.
        eval_episodes: episodes of an evaluation, all ranks together.
        eval_greedy: evaluate the policy's mode (True) or sample from it.
        eval_env_kwargs: changes to `env_kwargs` for evaluation only.
        eval_max_steps: an evaluation episode this long is cut, aloud.

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
        eval_episodes: int = 32,
        eval_greedy: bool = True,
        eval_env_kwargs: dict[str, Any] | None = None,
        eval_max_steps: int = 20_000,
    ):
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
        )
        require_positive("horizon", horizon)
        self.horizon = horizon
        self.save_hyperparameters()

    @property
    def rows_per_rollout(self) -> int:
        """Transitions in one rank's rollout."""
        return self.horizon * self.num_envs * self.spaces["agents"]

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps one iteration adds, all ranks together."""
        return self.horizon * self.num_envs * self.world_size

    def train_dataloader(self) -> RolloutDataset:
        """The loop: environments stepped with the module's own policy."""
        self.dataset = RolloutDataset(self.make_collector(self.horizon), self.iterations, self.trainer)
        return self.dataset
