"""SequenceDataModule: online data for sequence models; agents explore, and pieces of their trajectories are sampled."""

from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from torch import Tensor

from datamodules.base import EnvDataModule, check_positive
from datamodules.buffers.sequence_buffer import SequenceBuffer
from datamodules.collect.collector import RolloutCollector
from datamodules.collect.evaluation import EvaluationDataset
from datamodules.collect.iteration_dataset import IterationDataset
from datamodules.collect.validation_sequences import (
    HeldOutDataset,
    check_finite,
    longest_contiguous,
    record_validation_data,
)
from datamodules.core.arguments import require_values
from datamodules.core.errors import ConfigurationError
from datamodules.core.seeding import derive_generator, derive_seed, global_seed, restore_generator
from datamodules.core.sequence_types import PREDICTION_STEPS, SequenceIteration, ValidationData


class SequenceDataset(IterationDataset):
    """Dataset that steps environments with the module's policy, stores the steps, and samples pieces of them.

    Args:
        collector: collector that steps the environments.
        ring: sequence buffer.
        shape: (U, N): minibatches per iteration, pieces per minibatch.
        recent: number of the N pieces that are the most recent steps.
        generator: generator of the sampling.
        iterations: iterations of the run.
        trainer: Trainer of the run.
    """

    def __init__(
        self,
        collector: RolloutCollector,
        ring: SequenceBuffer,
        shape: tuple[int, int],
        recent: int,
        generator: torch.Generator,
        iterations: int,
        trainer: Any,
    ):
        super().__init__(iterations, trainer)
        self.collector, self.ring, self.shape, self.recent = collector, ring, shape, recent
        self.generator = generator

    def collect(self) -> SequenceIteration:
        """Collect and store a rollout, and sample minibatches."""
        rollout = self.collector.collect()
        fresh = self.ring.append(rollout)
        uniforms = torch.rand(*self.shape, 2, generator=self.generator, device=self.generator.device)
        chunks = self.ring.sample(uniforms, self.recent)
        history = self.ring.history() if self.shape[0] else None
        return SequenceIteration(fresh, rollout.extras, chunks, history, rollout.env_steps, rollout.episodes)


class SequenceDataModule(EnvDataModule):
    """Online data: E agents explore in parallel; their steps are stored, and pieces of them are sampled.

    Args:
        env: a Gymnasium id (`CartPole-v1`, `module:Id`) or the dotted path of an environment class.
        num_envs: E, agents per rank, which share one model.
        train_freq: steps of every agent between two updates of the model.
        total_env_steps: environment steps of the run, summed over ranks, rounded up to whole iterations.
        capacity: steps stored per agent.
        num_updates: U, minibatches sampled per iteration; 0 if the model learns from each new step instead.
        batch_size: N, pieces per minibatch.
        sequence_length: L, steps per piece.
        num_recent: number of pieces per minibatch that are the most recent steps.
        num_val_sequences: validation sequences, recorded with held random actions, summed over ranks.
        val_sequence_length: steps of a validation sequence, and of a trajectory played by `predict`.
        environment: other arguments of `EnvDataModule`, without those of evaluation episodes.

    Raises: ConfigurationError for invalid values.
    """

    def __init__(
        self,
        env: str,
        *,
        num_envs: int = 1,
        train_freq: int = 1,
        total_env_steps: int = 2_000,
        capacity: int = 10_000,
        num_updates: int = 0,
        batch_size: int = 32,
        sequence_length: int = 20,
        num_recent: int = 0,
        num_val_sequences: int = 32,
        val_sequence_length: int = 100,
        **environment: Any,
    ):
        require_values("data", SequenceDataModule, locals())
        check_positive("val_sequence_length", val_sequence_length)
        super().__init__(
            env,
            num_envs=num_envs,
            total_env_steps=total_env_steps,
            eval_episodes=num_val_sequences,
            eval_greedy=False,
            eval_env_kwargs=None,  # validation sequences are of the same environment
            eval_max_steps=val_sequence_length,
            **environment,
        )
        sizes = {"train_freq": train_freq, "capacity": capacity, "batch_size": batch_size}
        sizes["sequence_length"] = sequence_length
        for name, value in sizes.items():
            check_positive(name, value)
        if num_updates < 0 or not 0 <= num_recent <= batch_size:
            raise ConfigurationError(
                f"data.num_updates is {num_updates} and data.num_recent {num_recent}: they must not be negative, and"
                f" num_recent must not exceed data.batch_size {batch_size}."
            )
        self._require_spaces()
        self.train_freq, self.num_updates = train_freq, num_updates
        self.batch_size, self.num_recent = batch_size, num_recent
        self.num_val_sequences, self.val_sequence_length = num_val_sequences, val_sequence_length
        self.ring = SequenceBuffer(capacity, sequence_length)
        self.generator: torch.Generator | None = None
        self._held_out: ValidationData | None = None

    def _require_spaces(self) -> None:
        """Raise ConfigurationError for several agents, and for actions that are not continuous."""
        agents, kind = self.spaces["num_agents"], self.spaces["action_type"]
        if agents > 1:
            raise ConfigurationError(
                f"{self.env} has {agents} agents; exploring dynamics needs environments of one agent."
            )
        if kind != "continuous":
            raise ConfigurationError(
                f"{self.env} takes {kind} actions; exploring dynamics needs continuous ones: choose another"
                " environment, or modules.PPO with datamodules.RolloutDataModule."
            )

    def train_dataloader(self) -> SequenceDataset:
        """Return the dataset that steps environments with the module's policy."""
        assert self.trainer is not None
        restored = self._restored
        collector = self.make_collector()
        generator = derive_generator(global_seed(), self.trainer.global_rank, "replay", collector.envs.device)
        if restored is not None:
            restore_generator(generator, restored["replay"])
            self.ring.load_state_dict(restored["ring"], collector.envs.device)
            if not restored["envs"]:
                self.ring.break_episode()
        self.generator = generator
        shape = (self.num_updates, self.batch_size)
        self.dataset = SequenceDataset(
            collector, self.ring, shape, self.num_recent, generator, self.iterations, self.trainer
        )
        return self.dataset

    def rank_state_dict(self) -> dict[str, Any]:
        """Return the state with the stored steps and the generator of the sampling."""
        assert self.generator is not None
        drawn = {"replay": self.generator.get_state(), "ring": self.ring.state_dict()}
        return super().rank_state_dict() | drawn

    def extra_metrics(self) -> dict[str, float | Tensor]:
        """Return the largest stored observation, NaN if one is NaN; `DivergenceGuard` reads it."""
        return {**super().extra_metrics(), "train/largest_obs": self.ring.columns["obs"].abs().max()}

    def val_dataloader(self) -> Any:
        """Return the dataset of held-out sequences."""
        return HeldOutDataset(self.held_out_sequences())

    def held_out_sequences(self) -> ValidationData:
        """Return held-out sequences, recorded once and equal in every evaluation."""
        assert self.trainer is not None
        if self._held_out is None:
            rank = self.trainer.global_rank
            rows = -(-self.num_val_sequences // self.world_size)
            envs = self._make_training_envs(rows)
            self._held_out = record_validation_data(
                envs, self.val_sequence_length, derive_seed(global_seed(), rank, "eval")
            )
            envs.close()
            check_finite(self._held_out.sequences, self.env)
            self._warn_of_short(longest_contiguous(self._held_out.sequences.contiguous))
            if self._held_out.grid is None:
                rank_zero_info(f"{self.env} provides no true vector field: only dynamics/r2_k is evaluated.")
        return self._held_out

    def _warn_of_short(self, steps: int) -> None:
        """Warn which prediction horizons cannot be measured if no held-out trajectory is longer than `steps`."""
        if missing := [str(k) for k in PREDICTION_STEPS if k > steps]:
            rank_zero_warn(
                f"No held-out trajectory lasts {', '.join(missing)} steps, so dynamics/r2_{missing[0]} and beyond are"
                f" nan: raise data.val_sequence_length, which is {self.val_sequence_length}, or let episodes of"
                f" {self.env} last longer."
            )

    def test_dataloader(self) -> Any:
        """Return the dataset of held-out sequences."""
        return self.val_dataloader()

    def predict_dataloader(self) -> EvaluationDataset:
        """Return episodes of the module's policy, as many and at most as long as the held-out sequences."""
        assert self.trainer is not None
        rank = self.trainer.global_rank
        rows = -(-self.num_val_sequences // self.world_size)
        envs = self._make_training_envs(rows)
        self._eval_envs, seed = envs, derive_seed(global_seed(), rank, "eval")
        how: dict[str, Any] = {"greedy": self.eval_greedy, "record": True, "cut": True, "name": self.env}
        return EvaluationDataset(envs, self._actor, rows, seed=seed, max_steps=self.val_sequence_length, **how)
