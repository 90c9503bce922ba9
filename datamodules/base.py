"""EnvDataModule: environment, spaces, evaluation episodes and exact resume, shared by all data modules."""

import inspect
from collections.abc import Iterator
from types import FrameType
from typing import Any, Literal, cast

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from datamodules.collect.alternating import AlternatingCollector
from datamodules.collect.collector import RolloutCollector
from datamodules.collect.evaluation import EvaluationDataset
from datamodules.collect.iteration_dataset import set_env_progress
from datamodules.core.arguments import require_values
from datamodules.core.errors import ConfigurationError
from datamodules.core.phase import Phase
from datamodules.core.protocols import Policy, VectorEnv
from datamodules.core.pytree import tree_map
from datamodules.core.seeding import derive_generator, derive_seed, global_seed
from datamodules.core.types import SpaceSpec
from datamodules.env_interface.processes import require_processes
from datamodules.multi_agent.append_obs import AppendedPart
from datamodules.multi_agent.settings import AgentSettings, OpponentFactory
from datamodules.rendering.episode import RenderedStep, rendered_episode
from datamodules.rendering.vector_episode import vector_episode
from datamodules.vector.make_env import make_vector_env, probe_spaces
from datamodules.vector.resolve_env import ResolvedEnv, resolve_env
from datamodules.worker_pool.vector_env import WorkerPoolVectorEnv
from datamodules.wrappers.apply_wrappers import EnvWrapper, plain_wrappers, resolve_wrappers, wrapper_name

Backend = Literal["auto", "device", "sync", "async", "vector", "pool", "envpool"]
OnEnvError = Literal["stop", "restart"]
CLASS_SETTINGS = ("wrappers", "train_wrappers", "opponents")


class EnvDataModule(LightningDataModule):
    """Environments for training and evaluation; subclasses define the training batches.

    Subclasses take these arguments as `**environment`, and pass on those that they do not take themselves.

    Args:
        env: a Gymnasium id (`CartPole-v1`, `module:Id`) or the dotted path of an environment class.
        env_kwargs: keyword arguments of the environment.
        wrappers: wrapper classes with their arguments, applied to every environment, the first one innermost: those of
            `gymnasium.wrappers` by name, or a `gymnasium.Wrapper` of yours by dotted path. Not for backends that step
            environments as tensors or as one vector (device, vector, envpool); auto then chooses sync.
        train_wrappers: further wrappers around these, in training only, such as `EpisodicLife` or `ClipReward`.
        backend: auto | device (on-device tensors) | sync | async (one process per environment) | vector (the id's own
            vector entry point) | pool (several environments in each of a few processes) | envpool (EnvPool's
            environments, in C++ threads).
        num_envs: environments per rank.
        total_env_steps: environment steps of the run, summed over ranks, rounded up to whole iterations.
        eval_episodes: episodes per evaluation, summed over ranks.
        eval_greedy: evaluate the policy's mode (True) or sample from it.
        eval_env_kwargs: changes to `env_kwargs` for evaluation only.
        eval_max_steps: evaluation episodes are truncated after this number of steps, with a warning.
        iterations_per_batch: iterations per Trainer batch; more than 1 saves Lightning's overhead (0.3 ms a batch) if
            iterations take a few ms, and is refused with callbacks that act on every batch.
        env_timeout: maximum seconds for the start, a reset or a step of an environment in a process (async, pool); the
            error names the environment and its action. null: 300 for these backends; the others have no timeout.
        on_env_error: action if an environment in a process (async, pool) raises, crashes or exceeds `env_timeout`: stop
            ends the run; restart creates it again and drops its episode, up to max(3, num_envs) times within 1,000 env
            steps.
        num_workers: processes of the backend pool, at most half of `num_envs`; null: one less than this rank's cores,
            and at least two.
        pin_memory: on a GPU, pin the memory of the backend pool, so that copies to the device need no staging; other
            backends refuse false.
        drop_unsupported_obs: drop parts of observations that are no numbers, such as texts, with a warning; false
            refuses such environments.
        append_obs: parts to append to every observation: agent_id (one-hot), last_action and last_reward.
        policy_group: group of every agent of an environment: 0 learns, and the n-th of `opponents` plays group n, whose
            rows are not learned from. null: all agents learn.
        opponents: policies that do not learn, such as `modules.CheckpointPolicy`.

    Attributes:
        off_policy: whether batches come from a replay buffer.
        collects_online: whether the module's policy collects the training data.
        steps_setting: name of the setting that holds the vector steps of one rollout.
        dataset: source of iterations during `fit`.

    Raises: ConfigurationError for invalid values, and for environments that cannot be created.
    """

    acts_per_iteration = False  # its batch hook does nothing per iteration
    off_policy = False
    collects_online = True
    steps_setting = "train_freq"
    dataset: Any = None

    def __init__(
        self,
        env: str,
        env_kwargs: dict[str, Any] | None = None,
        wrappers: list[EnvWrapper] | None = None,
        train_wrappers: list[EnvWrapper] | None = None,
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
        num_workers: int | None = None,
        pin_memory: bool = True,
        drop_unsupported_obs: bool = True,
        append_obs: list[AppendedPart] | None = None,
        policy_group: list[int] | None = None,
        opponents: list[OpponentFactory] | None = None,
    ):
        require_values("data", EnvDataModule, locals())
        super().__init__()
        self._save_settings()
        self.env, self.env_kwargs, self.backend, self.num_envs = env, env_kwargs or {}, backend, num_envs
        self.total_env_steps, self.eval_episodes, self.eval_greedy = total_env_steps, eval_episodes, eval_greedy
        self.eval_env_kwargs = self.env_kwargs | (eval_env_kwargs or {})
        self.eval_max_steps, self.iterations_per_batch = eval_max_steps, iterations_per_batch
        for name in ("num_envs", "total_env_steps", "eval_episodes", "eval_max_steps", "iterations_per_batch"):
            check_positive(name, getattr(self, name))
        self.env_timeout, self.on_env_error = env_timeout, on_env_error
        self.num_workers, self.pin_memory = num_workers, pin_memory
        self.drop_unsupported_obs = drop_unsupported_obs
        require_processes(env_timeout, on_env_error, num_workers, pin_memory, backend)
        self.wrappers = resolve_wrappers(wrappers, "wrappers")
        self.train_wrappers = (*self.wrappers, *resolve_wrappers(train_wrappers, "train_wrappers"))
        self.agents = AgentSettings(append_obs, policy_group, opponents, self._probe_spaces(), env)
        self.spaces = self.agents.spaces
        self.collector: RolloutCollector | None = None
        self._restored: dict[str, Any] | None = None
        self._state_after_fit: dict[str, Any] | None = None
        self._eval_envs: VectorEnv | None = None

    def _probe_spaces(self) -> SpaceSpec:
        """Return the spaces of the environment with its wrappers.

        Raises: ConfigurationError for wrappers of training that give it other spaces, and arguments it does not take.
        """
        settings, kept = (self.env, self.env_kwargs, self.backend), (self.wrappers, self.drop_unsupported_obs)
        spaces = probe_spaces(*settings, *kept)
        if self.train_wrappers != self.wrappers:
            trained = probe_spaces(*settings, self.train_wrappers, self.drop_unsupported_obs)
            if changed := [key for key, value in spaces.items() if cast(dict[str, Any], trained)[key] != value]:
                raise ConfigurationError(
                    f"data.train_wrappers changes {', '.join(changed)} of {self.env}, but agents are evaluated without"
                    " these wrappers: move the one that does so to data.wrappers."
                )
        if self.eval_env_kwargs != self.env_kwargs and self.backend != "envpool":  # which checks them itself
            self._resolved.check_env_kwargs(self.eval_env_kwargs, "eval_env_kwargs")
            if self._resolved.tensor_env is not None:
                probe_spaces(self.env, self.eval_env_kwargs, self.backend, *kept)
        return spaces

    def describe_wrappers(self) -> str:
        """Return the names of the wrappers, the first one innermost; empty if there are none."""
        both, training = self.wrappers, self.train_wrappers[len(self.wrappers) :]
        names = [", ".join(map(wrapper_name, both))] * bool(both)
        names += [f"{', '.join(map(wrapper_name, training))} in training"] * bool(training)
        return "; ".join(names)

    def _save_settings(self) -> None:
        """Save the arguments of the `__init__` that calls it and of its subclasses, with classes as plain data."""
        self.save_hyperparameters(frame=cast(FrameType, cast(FrameType, inspect.currentframe()).f_back))
        for hparams in (vars(self)["_hparams"], vars(self)["_hparams_initial"]):
            for name in CLASS_SETTINGS:
                if hparams.get(name):
                    hparams[name] = plain_wrappers(hparams[name])

    @property
    def steps_per_iteration(self) -> int:
        """Return the environment steps of one iteration, summed over ranks."""
        return self.steps_per_rollout * self.num_envs * self.world_size

    @property
    def iterations(self) -> int:
        """Return the iterations of the whole run: those done plus the fewest needed for the remaining env steps.

        Iterations with invalid steps, or done with another number of environments or ranks, change the number.
        """
        done, taken = (self.trainer.global_step, self.env_steps_taken) if self.trainer is not None else (0, 0)
        return done + -(-max(0, self.total_env_steps - taken) // self.steps_per_iteration)

    @property
    def env_steps_taken(self) -> int:
        """Return the environment steps of this run so far, including those before a resume, summed over ranks."""
        module: Any = self.trainer.lightning_module if self.trainer is not None else None
        return 0 if module is None else module.env_steps - module.earlier_env_steps

    @property
    def progress(self) -> float:
        """Return the fraction of the run's environment steps done, in [0, 1], counted to the end of an iteration."""
        taken, left = self.env_steps_taken, max(0, self.total_env_steps - self.env_steps_taken)
        return taken / (taken + -(-left // self.steps_per_iteration) * self.steps_per_iteration)

    @property
    def world_size(self) -> int:
        """Return the number of ranks of this run."""
        return self.trainer.world_size if self.trainer is not None else 1

    @property
    def _actor(self) -> Policy:
        assert self.trainer is not None
        return cast(Policy, self.trainer.lightning_module)

    def _rollout_policy(self) -> Policy:
        """Return the policy that collects."""
        return self._actor

    @property
    def steps_per_rollout(self) -> int:
        """Return T, the vector steps of one rollout."""
        return int(getattr(self, self.steps_setting))

    def make_collector(self) -> RolloutCollector:
        """Create this rank's environments and their collector; restore them from a checkpoint if there is one."""
        assert self.trainer is not None
        rank, device = self.trainer.global_rank, self.trainer.strategy.root_device
        envs, rollout_length = self._make_training_envs(self.num_envs), self.steps_per_rollout
        shortest, setting = envs.min_truncation_step, f"data.{self.steps_setting}"
        if envs.is_stateless and shortest is not None and rollout_length > shortest:
            raise ConfigurationError(
                f"{setting} is {rollout_length}, but {self.env} can be truncated after {shortest} steps, and"
                f" an on-device rollout stores one true last observation per row: set {setting} to at most {shortest}."
            )
        generator = derive_generator(global_seed(), rank, "action", device)
        kind = AlternatingCollector if isinstance(envs, WorkerPoolVectorEnv) else RolloutCollector
        collector = kind(envs, self._rollout_policy(), rollout_length, generator, self.env)
        restored, self._restored = self._restored, None
        if restored is None:
            collector.reset(derive_seed(global_seed(), rank, "env"))
        elif not collector.load_state_dict(restored):
            rank_zero_info(f"{self.env} cannot save its state: the resumed run resets its environments.")
        self.collector = collector
        return collector

    def _make_training_envs(self, rows: int) -> VectorEnv:
        return set_env_progress(self._make_envs(rows, self.env_kwargs, self.train_wrappers), self.progress)

    def _make_eval_envs(self, rows: int) -> VectorEnv:
        return self._make_envs(rows, self.eval_env_kwargs, self.wrappers)

    def _make_envs(self, rows: int, env_kwargs: dict[str, Any], wrappers: tuple[EnvWrapper, ...]) -> VectorEnv:
        """Create this rank's environments; the host's cores are divided among its ranks."""
        assert self.trainer is not None
        device, ranks = self.trainer.strategy.root_device, self.trainer.num_devices
        settings: dict[str, Any] = {"device": device, "ranks": ranks, "timeout": self.env_timeout}
        settings |= {"restart": self.on_env_error == "restart", "num_workers": self.num_workers}
        settings |= {"pin_memory": self.pin_memory, "env_kwargs": env_kwargs, "wrappers": wrappers}
        return self.agents.wrap(make_vector_env(self.env, rows, backend=self.backend, **settings))

    def check_finite(self) -> None:
        """Raise NonFiniteError if the environments returned NaN or an infinity in the last rollout."""
        if self.collector is not None:
            self.collector.finite_check.finish()

    def collect(self) -> Any:
        """Return the data of one iteration, during `fit`."""
        return self.dataset.collect()

    @property
    def phases(self) -> dict[str, Phase[Any]]:
        """Return the data module's phases of an iteration by name, during `fit`."""
        assert self.collector is not None
        return {"collect": self.collector.phase}

    @property
    def concurrent_phases(self) -> tuple[str, ...]:
        """Return the names of the phases that run concurrently with others."""
        return ()

    def wait(self) -> None:
        """Wait for work that runs concurrently with the training loop; there is none by default."""

    def extra_metrics(self) -> dict[str, float | Tensor]:
        """Return additional values to log by tag during `fit`: restarts of all ranks if environments may be restarted.

        Every rank calls this together.
        """
        restarts = getattr(self.collector and self.collector.envs, "restarts", None)
        if restarts is None or self.trainer is None:
            return {}
        count = torch.tensor(float(restarts.count), device=self.trainer.strategy.root_device)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(count)
        return {"env/restarts": count}

    def replay_state_dict(self) -> dict[str, Any] | None:
        """Return the state saved in a separate file beside the last checkpoint, during `fit`; None if there is none."""
        return None

    def val_dataloader(self) -> EvaluationDataset:
        """Return the dataset of evaluation episodes."""
        return self._episodes(record=False)

    def test_dataloader(self) -> EvaluationDataset:
        """Return the dataset of evaluation episodes."""
        return self._episodes(record=False)

    def predict_dataloader(self) -> EvaluationDataset:
        """Return the dataset of evaluation episodes with trajectories."""
        return self._episodes(record=True)

    def _episodes(self, record: bool) -> EvaluationDataset:
        assert self.trainer is not None
        episodes = -(-self.eval_episodes // self.world_size)
        rows = self.num_envs if self._resolved.has_fixed_num_envs else min(self.num_envs, episodes)
        seed = derive_seed(global_seed(), self.trainer.global_rank, "eval")
        if self._eval_envs is None:
            self._eval_envs = self._make_eval_envs(rows)
        envs, greedy = self._eval_envs, self.eval_greedy
        limits: dict[str, Any] = {"seed": seed, "max_steps": self.eval_max_steps, "name": self.env}
        episodes *= envs.num_envs // rows  # every member of a population plays all of them
        return EvaluationDataset(envs, self._actor, episodes, greedy=greedy, record=record, **limits)

    def rendered_episode(
        self, policy: Policy, seed: int, greedy: bool | None = None, images: bool = True
    ) -> Iterator[RenderedStep]:
        """Play one evaluation episode in this process on the CPU, and yield its states with images.

        It is one of those that `predict` plays, in one environment; no Trainer is needed. With several agents,
        vectorised or with `append_obs`, only on-device environments with a `render` have images.

        Args:
            policy: on the CPU, in eval mode.
            seed: seed of the environment and of a sampling policy.
            greedy: use the mode of the policy instead of a sample; None: as evaluations do.
            images: render every state; False plays without.
        """
        greedy = self.eval_greedy if greedy is None else greedy
        settings: dict[str, Any] = {"greedy": greedy, "max_steps": self.eval_max_steps, "seed": seed, "images": images}
        env_kwargs = self.rendered_env_kwargs
        if self.agents.parts or self.agents.agent_spaces["num_agents"] > 1 or self._resolved.is_whole:
            envs = make_vector_env(self.env, 1, backend=self.backend, env_kwargs=env_kwargs, wrappers=self.wrappers)
            return vector_episode(self.agents.wrap(envs, self.agents.against(policy)), policy, **settings)
        return rendered_episode(self.env, env_kwargs, policy, wrappers=self.wrappers, **settings)

    @property
    def _resolved(self) -> ResolvedEnv:
        return resolve_env(self.env, self.backend)

    @property
    def rendered_env_kwargs(self) -> dict[str, Any]:
        """Return the arguments of the environment that `rendered_episode` plays."""
        return self.eval_env_kwargs

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Return the batch unchanged: it is already on its device."""
        return batch

    def rank_state_dict(self) -> dict[str, Any]:
        """Return this rank's state for a resume: tensors on the host and plain types."""
        assert self.collector is not None
        return tree_map(Tensor.cpu, self.collector.state_dict())

    def state_dict(self) -> dict[str, Any]:
        """Return the collector states of all ranks; called on every rank when a checkpoint is saved."""
        state = self._state_after_fit if self.collector is None else self.rank_state_dict()
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return {"ranks": [state]}
        ranks: list[Any] = [None] * self.world_size
        torch.distributed.all_gather_object(ranks, state)
        return {"ranks": ranks}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Store this rank's state until the environments are created."""
        ranks = state_dict["ranks"]
        if len(ranks) != self.world_size:
            rank_zero_info(f"Resuming {len(ranks)} ranks on {self.world_size}: the environments are reset.")
            return
        self._restored = ranks[self.trainer.global_rank] if self.trainer is not None else None

    def teardown(self, stage: str) -> None:
        """Close the environments."""
        if self.collector is not None and stage == "fit":
            self._state_after_fit = self.rank_state_dict()  # for a checkpoint saved after the fit
            self.collector.envs.close()
            self.collector = None
        self._close_evaluation()

    def on_exception(self, exception: BaseException) -> None:
        """Close the evaluation environments, which Lightning's teardown skips; the others may still be saved."""
        self._close_evaluation()

    def _close_evaluation(self) -> None:
        if self._eval_envs is not None:
            self._eval_envs.close()
            self._eval_envs = None


def check_positive(name: str, value: int) -> None:
    """Check that a value is at least 1.

    Raises: ConfigurationError otherwise.
    """
    if value < 1:
        raise ConfigurationError(f"data.{name} is {value}; it must be at least 1.")
