"""RolloutDataModule: on-policy data; each rollout is used for one iteration of learning."""

from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor

from datamodules.base import EnvDataModule, check_positive
from datamodules.collect.collector import RolloutCollector
from datamodules.collect.iteration_dataset import IterationDataset, follows_progress
from datamodules.collect.prefetching import PrefetchingCollector
from datamodules.core.arguments import require_values
from datamodules.core.errors import ConfigurationError
from datamodules.core.protocols import Policy, VectorEnv
from datamodules.core.pytree import tree_map
from datamodules.core.seeding import derive_seed
from datamodules.core.types import Rollout
from datamodules.vector.func_vector_env import PopulationVectorEnv


class RolloutDataset(IterationDataset):
    """Dataset of a collector's rollouts, collected ahead if `prefetcher` is given."""

    def __init__(
        self, collector: RolloutCollector, iterations: int, trainer: Any, prefetcher: PrefetchingCollector | None = None
    ):
        super().__init__(iterations, trainer)
        self.collector, self.prefetcher = collector, prefetcher

    def collect(self) -> Rollout:
        """Return the next rollout."""
        if self.prefetcher is None:
            return self.collector.collect()
        iteration, ends = self.trainer.global_step, (self.trainer.num_training_batches, self.trainer.max_steps)
        return self.prefetcher.collect(iteration, last=iteration + 1 in ends)


class RolloutDataModule(EnvDataModule):
    """On-policy rollouts of `rollout_length` steps of `num_envs` environments per rank.

    Args:
        env: a Gymnasium id (`CartPole-v1`, `module:Id`) or the dotted path of an environment class.
        rollout_length: steps of every environment per rollout.
        policy_lag: iterations that the collecting policy lags behind the learning one. 0 collects, then learns; 1
            collects the next rollout while learning from the last, for algorithms that correct for it (PPO). Sample
            efficiency drops slightly; use it if stepping the environments is slow. On a CPU they are then stepped in
            another thread than the one that created them.
        environment: other arguments of `EnvDataModule`.

    Raises: ConfigurationError for invalid values, and for environments that cannot be created.
    """

    steps_setting, supports_population = "rollout_length", True

    def __init__(self, env: str, *, rollout_length: int = 128, policy_lag: int = 0, **environment: Any):
        require_values("data", RolloutDataModule, locals())
        super().__init__(env, **environment)
        check_positive("rollout_length", rollout_length)
        if policy_lag not in (0, 1):
            raise ConfigurationError(
                f"data.policy_lag is {policy_lag}; give 0 (collect, then learn) or 1 (collect the next while learning)."
            )
        self.rollout_length, self.policy_lag = rollout_length, policy_lag
        self._restored_prefetcher: dict[str, Any] | None = None

    @property
    def transitions_per_rollout(self) -> int:
        """Return the transitions in one rank's rollout."""
        return self.rollout_length * self.num_envs * self.spaces["num_agents"]

    @property
    def concurrent_phases(self) -> tuple[str, ...]:
        """Return the names of the phases that run concurrently with others."""
        return ("collect",) * self.policy_lag

    def train_dataloader(self) -> RolloutDataset:
        """Return the dataset that steps environments with the module's policy, or with a copy that collects ahead."""
        assert self.trainer is not None
        collector, prefetcher = self.make_collector(), None
        if self.policy_lag:
            if follows_progress(collector.envs):
                raise ConfigurationError(
                    f"{self.env} becomes harder between two rollouts, but with data.policy_lag 1 the next has begun by"
                    " then: set data.policy_lag to 0, or leave the curriculum out of data.env_kwargs."
                )
            forward_context = self.trainer.precision_plugin.forward_context
            prefetcher = PrefetchingCollector(collector, self._actor, forward_context)
            if self._restored_prefetcher is not None:
                prefetcher.load_state_dict(self._restored_prefetcher)
        self._restored_prefetcher = None
        self.dataset = RolloutDataset(collector, self.iterations, self.trainer, prefetcher)
        return self.dataset

    @property
    def _member_seeds(self) -> Sequence[int]:
        """Return the seeds of a population, whose members have `num_envs` environments each; empty for one agent."""
        return getattr(self._actor, "seeds", ())

    def _make_training_envs(self, rows: int) -> VectorEnv:
        seeds = self._member_seeds
        envs = super()._make_training_envs(rows * (len(seeds) or 1))
        return PopulationVectorEnv(envs, [derive_seed(seed, 0, "env") for seed in seeds]) if seeds else envs

    def _make_eval_envs(self, rows: int) -> VectorEnv:
        seeds = self._member_seeds
        envs = super()._make_eval_envs(rows * (len(seeds) or 1))
        return PopulationVectorEnv(envs, [derive_seed(seed, 0, "eval") for seed in seeds]) if seeds else envs

    @property
    def _prefetcher(self) -> PrefetchingCollector | None:
        return None if self.collector is None or self.dataset is None else self.dataset.prefetcher

    def _rollout_policy(self) -> Policy:
        return cast(Any, self._actor).policy_copy() if self.policy_lag else self._actor

    def extra_metrics(self) -> dict[str, Any]:
        """Return the values to log, with the policy lag of the last rollout if `policy_lag` is 1."""
        metrics = super().extra_metrics()
        if self._prefetcher is not None:
            metrics["rollout/policy_lag"] = self._prefetcher.policy_lag
        return metrics

    def rank_state_dict(self) -> dict[str, Any]:
        """Return this rank's state at the start of the pending rollout, if there is one."""
        if self._prefetcher is None:
            return super().rank_state_dict()
        return tree_map(Tensor.cpu, self._prefetcher.start_state())

    def state_dict(self) -> dict[str, Any]:
        """Return the state with the weights that collect ahead."""
        prefetcher = None if self.dataset is None else self.dataset.prefetcher
        state = super().state_dict()
        if prefetcher is not None:
            state["ahead"] = tree_map(Tensor.cpu, prefetcher.state_dict())
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Store the weights that collected ahead, if this rank's environments can be restored."""
        super().load_state_dict(state_dict)
        self._restored_prefetcher = None if self._restored is None else state_dict.get("ahead")

    def wait(self) -> None:
        """Wait for the pending rollout."""
        if self._prefetcher is not None:
            self._prefetcher.wait()

    def on_exception(self, exception: BaseException) -> None:
        """End the thread that collects ahead, without waiting for a slow environment."""
        if self._prefetcher is not None:
            self._prefetcher.close(seconds=1.0)
        super().on_exception(exception)

    def teardown(self, stage: str) -> None:
        """End the thread that collects ahead, then close the environments."""
        if self._prefetcher is not None and stage == "fit":
            self._prefetcher.close()
        super().teardown(stage)
