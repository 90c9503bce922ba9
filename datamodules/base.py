"""What every DataModule of Leyden shares: the environment, its spaces, evaluation episodes and exact resume."""

from typing import Any, Literal, cast

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from datamodules.collect.alternating import HalvedCollector
from datamodules.collect.collector import Collector
from datamodules.collect.evaluation import EpisodeDataset
from datamodules.core.errors import UsageError
from datamodules.core.phase import Joint
from datamodules.core.protocols import Actor, VectorEnv
from datamodules.core.pytree import mapped
from datamodules.core.required_values import require_values
from datamodules.core.seeding import run_seed, stream_generator, stream_seed
from datamodules.vector.make_env import make_envs, probe_spaces
from datamodules.worker_pool.vector_env import PoolEnv

Backend = Literal["auto", "device", "sync", "async", "vector", "pool", "envpool"]
OnEnvError = Literal["stop", "restart"]


class EnvironmentData(LightningDataModule):
    """Environments to learn from and to evaluate on; subclasses say how experience becomes batches.

    Args:
        env: a Gymnasium id (`CartPole-v1`, `module:Id`) or the dotted path of an environment class.
        env_kwargs: keyword arguments of the environment.
        backend: auto | device (on-device tensors) | sync | async (a process each) | vector (the id's own entry point)
            | pool (many environments in each of a few processes) | envpool (EnvPool's environments, in threads of C++).
        num_envs: environments on each rank.
        total_env_steps: the length of the run in environment steps, all ranks together, rounded up to whole iterations.
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

    Attributes:
        off_policy: whether batches come from a replay.
        acts: whether the module's policy collects.
        dataset: where iterations come from, while fitting.

    Raises: UsageError for values that cannot be, and for environments that cannot be made.
    """

    acts_per_iteration = False  # its hook for batches moves nothing
    off_policy = False
    acts = True
    dataset: Any = None

    def __init__(
        self,
        env: str,
        env_kwargs: dict[str, Any] | None = None,
        backend: Backend = "auto",
        num_envs: int = 8,
        total_env_steps: int = 100_000,
        eval_episodes: int = 32,
        eval_greedy: bool = True,
        eval_env_kwargs: dict[str, Any] | None = None,
        eval_max_steps: int = 20_000,
        iterations_per_batch: int = 1,
        env_timeout: float | None = None,
        on_env_error: OnEnvError = "stop",
    ):
        require_values("data", EnvironmentData, locals())
        super().__init__()
        self.env, self.env_kwargs, self.backend, self.num_envs = env, env_kwargs or {}, backend, num_envs
        self.total_env_steps, self.eval_episodes, self.eval_greedy = total_env_steps, eval_episodes, eval_greedy
        self.eval_env_kwargs = self.env_kwargs | (eval_env_kwargs or {})
        self.eval_max_steps, self.iterations_per_batch = eval_max_steps, iterations_per_batch
        for name in ("num_envs", "total_env_steps", "eval_episodes", "eval_max_steps", "iterations_per_batch"):
            require_positive(name, getattr(self, name))
        self.env_timeout, self.on_env_error = env_timeout, on_env_error
        require_processes(env_timeout, on_env_error, backend)
        self.spaces = probe_spaces(env, self.env_kwargs, backend)
        self.collector: Collector | None = None
        self._restored: dict[str, Any] | None = None
        self._final: dict[str, Any] | None = None
        self._eval_envs: VectorEnv | None = None

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps one iteration adds, all ranks together."""
        raise NotImplementedError

    @property
    def iterations(self) -> int:
        """Iterations of the whole run: those done, and as many as the environment steps still to take need at least.

        An iteration that holds invalid steps, or that was done on another number of environments or ranks, changes it.
        """
        done, taken = (self.trainer.global_step, self.env_steps_taken) if self.trainer is not None else (0, 0)
        return done + -(-max(0, self.total_env_steps - taken) // self.steps_per_iteration)

    @property
    def env_steps_taken(self) -> int:
        """Environment steps that this run has taken, those before a resume included, all ranks together."""
        module: Any = self.trainer.lightning_module if self.trainer is not None else None
        return 0 if module is None else (module.env_steps - module.earlier_env_steps) // self.spaces["agents"]

    @property
    def progress(self) -> float:
        """Share of the run's environment steps that are taken, in [0, 1], of those that its last iteration ends at."""
        taken, left = self.env_steps_taken, max(0, self.total_env_steps - self.env_steps_taken)
        return taken / (taken + -(-left // self.steps_per_iteration) * self.steps_per_iteration)

    @property
    def world_size(self) -> int:
        """Ranks of this run."""
        return self.trainer.world_size if self.trainer is not None else 1

    @property
    def _actor(self) -> Actor:
        assert self.trainer is not None
        return cast(Actor, self.trainer.lightning_module)

    def _collecting(self) -> Actor:
        """Who acts while collecting."""
        return self._actor

    def make_collector(self, horizon: int) -> Collector:
        """Environments of this rank and their collector: restored from a checkpoint, else at the start."""
        assert self.trainer is not None
        rank, device = self.trainer.global_rank, self.trainer.strategy.root_device
        envs = self._copies(self.num_envs, self.env_kwargs)
        shortest = envs.shortest_truncation
        if envs.pure and shortest is not None and horizon > shortest:
            raise UsageError(
                f"data.horizon is {horizon}, but {self.env} can be truncated after {shortest} steps, and an"
                f" on-device rollout keeps one true last observation a row: set data.horizon to at most {shortest}."
            )
        generator = stream_generator(run_seed(), rank, "action", device)
        kind = HalvedCollector if isinstance(envs, PoolEnv) else Collector
        collector = kind(envs, self._collecting(), horizon, generator, self.env)
        restored, self._restored = self._restored, None
        if restored is None:
            collector.start(stream_seed(run_seed(), rank, "env"))
        elif not collector.load_state_dict(restored):
            rank_zero_info(f"{self.env} cannot save its state: the resumed run begins new episodes.")
        self.collector = collector
        return collector

    def _copies(self, rows: int, env_kwargs: dict[str, Any]) -> VectorEnv:
        """Environments of this rank, which shares its host with the others there."""
        assert self.trainer is not None
        device, ranks = self.trainer.strategy.root_device, self.trainer.num_devices
        where: dict[str, Any] = {"device": device, "ranks": ranks, "timeout": self.env_timeout}
        where["restart"] = self.on_env_error == "restart"
        return make_envs(self.env, rows, backend=self.backend, env_kwargs=env_kwargs, **where)

    def require_finite(self) -> None:
        """Raise NonFiniteError if the environments returned NaN or an infinity in the last rollout."""
        if self.collector is not None:
            self.collector.finite.require()

    def collect(self) -> Any:
        """What one iteration learns from, while fitting."""
        return self.dataset.collect()

    @property
    def joints(self) -> dict[str, Joint[Any]]:
        """The data's part of an iteration, by name, while fitting."""
        assert self.collector is not None
        return {"collect": self.collector.joint}

    @property
    def beside(self) -> tuple[str, ...]:
        """Joints, by name, that work while others do."""
        return ()

    def settle(self) -> None:
        """Wait for whatever works beside the loop; nothing does unless a subclass says otherwise."""

    def measured(self) -> dict[str, float | Tensor]:
        """Values to log with the training's, by tag, while fitting: restarts where environments may be restarted."""
        restarts = getattr(self.collector and self.collector.envs, "restarts", None)
        return {} if restarts is None else {"env/restarts": restarts.number}

    def replay_state(self) -> dict[str, Any] | None:
        """What belongs in a file of its own beside the last checkpoint, while fitting; None if nothing does."""
        return None

    def val_dataloader(self) -> EpisodeDataset:
        """Evaluation episodes."""
        return self._episodes(record=False)

    def test_dataloader(self) -> EpisodeDataset:
        """Evaluation episodes."""
        return self._episodes(record=False)

    def predict_dataloader(self) -> EpisodeDataset:
        """Evaluation episodes with their trajectories."""
        return self._episodes(record=True)

    def _episodes(self, record: bool) -> EpisodeDataset:
        assert self.trainer is not None
        episodes = -(-self.eval_episodes // self.world_size)
        rows = min(self.num_envs, episodes)
        seed = stream_seed(run_seed(), self.trainer.global_rank, "eval")
        if self._eval_envs is None:
            self._eval_envs = self._copies(rows, self.eval_env_kwargs)
        envs, greedy = self._eval_envs, self.eval_greedy
        limits: dict[str, Any] = {"seed": seed, "max_steps": self.eval_max_steps}
        return EpisodeDataset(envs, self._actor, episodes, greedy=greedy, record=record, **limits)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Batches are where they belong already."""
        return batch

    def rank_state(self) -> dict[str, Any]:
        """What this rank's part of the loop needs to go on, tensors on the host and plain types."""
        assert self.collector is not None
        return mapped(Tensor.cpu, self.collector.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Collectors of all ranks; called on every rank when a checkpoint is written."""
        own = self._final if self.collector is None else self.rank_state()
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return {"ranks": [own]}
        ranks: list[Any] = [None] * self.world_size
        torch.distributed.all_gather_object(ranks, own)
        return {"ranks": ranks}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep this rank's part until the environments are made."""
        ranks = state_dict["ranks"]
        if len(ranks) != self.world_size:
            rank_zero_info(f"Resuming {len(ranks)} ranks on {self.world_size}: the environments begin new episodes.")
            return
        self._restored = ranks[self.trainer.global_rank] if self.trainer is not None else None

    def teardown(self, stage: str) -> None:
        """Close the environments."""
        if self.collector is not None and stage == "fit":
            self._final = self.rank_state()  # a checkpoint written after the fit holds it
            self.collector.envs.close()
            self.collector = None
        self._close_evaluation()

    def on_exception(self, exception: BaseException) -> None:
        """Close the environments of evaluation, which Lightning's teardown does not reach; the others may be saved."""
        self._close_evaluation()

    def _close_evaluation(self) -> None:
        if self._eval_envs is not None:
            self._eval_envs.close()
            self._eval_envs = None


def require_processes(timeout: float | None, on_error: str, backend: str) -> None:
    """Require environments in processes for what can only be done to a process.

    Raises: UsageError for a time or a restart where there are none, for one that is not positive, and another word than
    stop or restart.
    """
    if timeout is not None and not timeout > 0:
        raise UsageError(f"data.env_timeout is {timeout:g}; it must be positive: .inf waits for ever.")
    if on_error not in ("stop", "restart"):
        raise UsageError(f"data.on_env_error is {on_error!r}; choose stop or restart.")
    asked = [] if timeout is None else [f"data.env_timeout is {timeout:g}"]
    asked += ["data.on_env_error is restart"] * (on_error == "restart")
    if asked and backend not in ("async", "pool"):
        raise UsageError(
            f"{asked[0]}, but only an environment in a process can be ended or begun anew, not one of backend"
            f" {backend}: set data.backend to async or pool, or leave {asked[0].split()[0]} out."
        )


def require_positive(name: str, value: int) -> None:
    """Raises: UsageError unless the value is at least 1."""
    if value < 1:
        raise UsageError(f"data.{name} is {value}; it must be at least 1.")
