"""Data for models of sequences: E agents live online, and what they lived is remembered as it was."""

from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor

from datamodules.base import Backend, EnvironmentData, OnEnvError, require_positive
from datamodules.buffers.sequence_buffer import SequenceRing
from datamodules.collect.collector import Collector
from datamodules.collect.evaluation import EpisodeDataset
from datamodules.collect.iteration_dataset import IterationDataset
from datamodules.collect.validation_sequences import HeldOutDataset, longest, record_held_out, require_finite
from datamodules.core.errors import UsageError
from datamodules.core.required_values import require_values
from datamodules.core.seeding import restore_generator, run_seed, stream_generator, stream_seed
from datamodules.core.sequence_types import AHEAD, HeldOut, SequenceExperience


class SequenceDataset(IterationDataset):
    """Steps environments with the module's policy, keeps what happened, and draws pieces of it.

    Args:
        collector: steps the environments.
        ring: remembers.
        shape: (U, N): minibatches an iteration, pieces in each.
        recent: so many of the N pieces are the newest steps.
        generator: of what is drawn.
        iterations: length of the run.
        trainer: that runs it.
    """

    def __init__(
        self,
        collector: Collector,
        ring: SequenceRing,
        shape: tuple[int, int],
        recent: int,
        generator: torch.Generator,
        iterations: int,
        trainer: Any,
    ):
        super().__init__(iterations, trainer)
        self.collector, self.ring, self.shape, self.recent = collector, ring, shape, recent
        self.generator = generator

    def collect(self) -> SequenceExperience:
        """Collect, remember, draw."""
        rollout = self.collector.collect()
        fresh = self.ring.store(rollout)
        uniforms = torch.rand(*self.shape, 2, generator=self.generator, device=self.generator.device)
        chunks = self.ring.sample(uniforms, self.recent)
        history = self.ring.history() if self.shape[0] else None
        return SequenceExperience(fresh, rollout.extras, chunks, history, rollout.env_steps, rollout.episodes)


class SequenceData(EnvironmentData):
    """Online: E agents explore in parallel; all they lived is remembered, and drawn from in pieces.

    Args:
        env, env_kwargs, backend: as for `EnvironmentData`.
        num_envs: E, agents on each rank, which share one model.
        horizon: steps of every agent between two updates of the model.
        total_env_steps: the length of the run in environment steps, all ranks together, rounded up.
        capacity: steps of every agent that are remembered.
        updates: U, minibatches drawn an iteration; 0 where the model learns from every step itself.
        batch_size: N, pieces in a minibatch.
        chunk: L, steps of a piece.
        recent: so many pieces of a minibatch are the newest steps.
        held_out: sequences that evaluation predicts, made with held random actions; all ranks together.
        held_out_steps: of each of them, and of what `predict` plays.
        iterations_per_batch: iterations that Lightning runs as one batch; more than 1 saves its overhead (0.3 ms a
            batch) where iterations take a few ms, and is refused beside callbacks that act on every batch.
        env_timeout: seconds that an environment in a process (async, pool) may take for its start, a reset or a step; a
            longer one is named with its action and ends the run. null: 300 there; the other backends have none.
        on_env_error: what follows where an environment in a process (async, pool) raises, dies or exceeds
            `env_timeout`: stop ends the run, restart makes it anew and drops its episode, up to max(3, num_envs) times
            within 1,000 env steps.

    Raises: UsageError for values that cannot be.
    """

    def __init__(
        self,
        env: str,
        env_kwargs: dict[str, Any] | None = None,
        backend: Backend = "auto",
        num_envs: int = 1,
        horizon: int = 1,
        total_env_steps: int = 2_000,
        capacity: int = 10_000,
        updates: int = 0,
        batch_size: int = 32,
        chunk: int = 20,
        recent: int = 0,
        held_out: int = 32,
        held_out_steps: int = 100,
        iterations_per_batch: int = 1,
        env_timeout: float | None = None,
        on_env_error: OnEnvError = "stop",
    ):
        require_values("data", SequenceData, locals())
        loop: dict[str, Any] = {"eval_greedy": False, "iterations_per_batch": iterations_per_batch}
        loop |= {"env_timeout": env_timeout, "on_env_error": on_env_error}
        super().__init__(env, env_kwargs, backend, num_envs, total_env_steps, held_out, **loop)
        for name, value in {"horizon": horizon, "capacity": capacity, "batch_size": batch_size, "chunk": chunk}.items():
            require_positive(name, value)
        require_positive("held_out_steps", held_out_steps)
        if updates < 0 or not 0 <= recent <= batch_size:
            raise UsageError(
                f"data.updates is {updates} and data.recent {recent}: they must not be negative, nor recent more than"
                f" data.batch_size {batch_size}."
            )
        if self.spaces["action_kind"] != "continuous":
            raise UsageError(
                f"{env} takes {self.spaces['action_kind']} actions; exploring dynamics needs continuous ones: choose"
                " another environment, or modules.ppo.ppo.PPO with datamodules.rollout.RolloutData."
            )
        self.horizon, self.updates, self.batch_size, self.recent = horizon, updates, batch_size, recent
        self.held_out, self.held_out_steps = held_out, held_out_steps
        self.ring = SequenceRing(capacity, chunk)
        self.generator: torch.Generator | None = None
        self._held_out: HeldOut | None = None
        self.save_hyperparameters()

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps one iteration adds, all ranks together."""
        return self.horizon * self.num_envs * self.world_size

    def train_dataloader(self) -> SequenceDataset:
        """The loop: environments stepped with the module's own policy."""
        assert self.trainer is not None
        restored = self._restored
        collector = self.make_collector(self.horizon)
        generator = stream_generator(run_seed(), self.trainer.global_rank, "replay", collector.envs.device)
        if restored is not None:
            restore_generator(generator, restored["replay"])
            self.ring.load_state_dict(restored["ring"], collector.envs.device)
            if not restored["envs"]:
                self.ring.cut()
        self.generator = generator
        shape = (self.updates, self.batch_size)
        self.dataset = SequenceDataset(
            collector, self.ring, shape, self.recent, generator, self.iterations, self.trainer
        )
        return self.dataset

    def rank_state(self) -> dict[str, Any]:
        """Adds what is remembered, and the state of the draws."""
        assert self.generator is not None
        drawn = {"replay": self.generator.get_state(), "ring": self.ring.state_dict()}
        return super().rank_state() | drawn

    def measured(self) -> dict[str, float | Tensor]:
        """The largest observation that is remembered, NaN if one is: `callbacks.run_control.divergence_guard.Stability` looks at it."""
        return {**super().measured(), "train/largest_obs": self.ring.columns["obs"].abs().max()}

    def val_dataloader(self) -> Any:
        """The held-out sequences."""
        return HeldOutDataset(self.held_out_sequences())

    def held_out_sequences(self) -> HeldOut:
        """Sequences that nobody learns from, recorded once, the same at every evaluation."""
        assert self.trainer is not None
        if self._held_out is None:
            rank = self.trainer.global_rank
            rows = -(-self.held_out // self.world_size)
            envs = self._copies(rows, self.env_kwargs)
            self._held_out = record_held_out(envs, self.held_out_steps, stream_seed(run_seed(), rank, "eval"))
            envs.close()
            require_finite(self._held_out.sequences, self.env)
            self._warn_of_short(longest(self._held_out.sequences.joined))
            if self._held_out.grid is None:
                rank_zero_info(f"{self.env} knows no true field: it is judged by its predictions, dynamics/r2_k.")
        return self._held_out

    def _warn_of_short(self, steps: int) -> None:
        """Say what cannot be measured, where no held-out trajectory is longer than `steps`."""
        if missing := [str(k) for k in AHEAD if k > steps]:
            rank_zero_warn(
                f"No held-out trajectory lasts {', '.join(missing)} steps, so dynamics/r2_{missing[0]} and beyond are"
                f" nan: raise data.held_out_steps, which is {self.held_out_steps}, or let episodes of {self.env} last"
                " longer."
            )

    def test_dataloader(self) -> Any:
        """The same."""
        return self.val_dataloader()

    def predict_dataloader(self) -> EpisodeDataset:
        """As many trajectories as are held out and as long, but of the module's policy; episodes may end earlier."""
        assert self.trainer is not None
        rank = self.trainer.global_rank
        rows = -(-self.held_out // self.world_size)
        envs = self._copies(rows, self.env_kwargs)
        self._eval_envs, seed = envs, stream_seed(run_seed(), rank, "eval")
        how: dict[str, Any] = {"greedy": self.eval_greedy, "record": True, "cut": True}
        return EpisodeDataset(envs, self._actor, rows, seed=seed, max_steps=self.held_out_steps, **how)
