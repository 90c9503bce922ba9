"""OfflineSequenceDataModule: sequences from a file of trajectories, or recorded at the start of the run."""

from pathlib import Path
from typing import Any

import torch

from datamodules.base import check_positive
from datamodules.buffers.sequence_buffer import SequenceBuffer
from datamodules.buffers.stored_episodes import padded_sequences
from datamodules.collect.iteration_dataset import IterationDataset
from datamodules.collect.validation_sequences import check_finite, record
from datamodules.core.arguments import require_values
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.episode_files import check_dataset, fitted_episodes, read_episodes
from datamodules.core.phase import Phase
from datamodules.core.seeding import derive_seed, global_seed
from datamodules.core.sequence_types import SequenceBatch, SequenceIteration
from datamodules.core.types import MetricVector, require_tensor
from datamodules.sequence import SequenceDataModule
from datamodules.vector.make_env import make_vector_env


class StoredDataset(IterationDataset):
    """Dataset that samples pieces of stored sequences.

    Args:
        ring: buffer with one sequence per row.
        shape: (U, N): minibatches per iteration, pieces per minibatch.
        seed: seed of the sampling; each iteration uses its own stream, so that no state is saved.
        iterations: iterations of the run.
        trainer: Trainer of the run.
    """

    def __init__(self, ring: SequenceBuffer, shape: tuple[int, int], seed: int, iterations: int, trainer: Any):
        super().__init__(iterations, trainer)
        self.ring, self.shape, self.seed = ring, shape, seed
        self.generator = torch.Generator(device=ring.columns["obs"].device)

    def collect(self) -> SequenceIteration:
        """Sample the minibatches of one iteration."""
        self.generator.manual_seed((self.seed + self.trainer.global_step) % 2**63)
        uniforms = torch.rand(*self.shape, 2, generator=self.generator, device=self.generator.device)
        chunks = self.ring.sample(uniforms, recent=0)
        episodes = MetricVector(("count", "return", "length"), torch.zeros(3, dtype=torch.float64))
        return SequenceIteration(None, {}, chunks, None, chunks.contiguous.numel(), episodes)


class OfflineSequenceDataModule(SequenceDataModule):
    """Offline data: pieces of the trajectories in a file. Environment steps count the sampled steps.

    Args:
        env: a Gymnasium id (`CartPole-v1`, `module:Id`) or the dotted path of an environment class, for the recording
            and for evaluation.
        dataset: episodes to learn from: a file `trajectories.npz` written by `predict`, or `minari:ID`, a Minari
            dataset on this machine; null records `sequences` of `steps` steps at the start, with uniform actions held
            for 20 steps.
        sequences: number of recorded sequences.
        steps: length of a recorded sequence, in steps.
        total_env_steps: sampled steps of the whole run, summed over ranks, rounded up.
        num_updates: U, minibatches per iteration.
        sequence_length: L, steps per piece.
        num_val_sequences: validation sequences, recorded with held random actions, summed over ranks.
        data: other arguments of `SequenceDataModule`, without those of collecting.

    Raises: ConfigurationError for invalid values, and for a file not written by `predict`.
    """

    collects_online = False

    def __init__(
        self,
        env: str,
        *,
        dataset: str | None = None,
        sequences: int = 64,
        steps: int = 100,
        total_env_steps: int = 2_000_000,
        num_updates: int = 1,
        sequence_length: int = 50,
        num_val_sequences: int = 64,
        **data: Any,
    ):
        require_values("data", OfflineSequenceDataModule, locals())
        super().__init__(
            env,
            train_wrappers=None,
            num_envs=sequences,
            train_freq=1,
            total_env_steps=total_env_steps,
            capacity=max(steps, sequence_length),
            num_updates=num_updates,
            sequence_length=sequence_length,
            num_recent=0,
            num_val_sequences=num_val_sequences,
            **data,
        )
        check_positive("num_updates", num_updates)
        check_positive("sequences", sequences)
        if dataset is not None:
            check_dataset(dataset)
        self.source, self.sequences, self.steps, self.sequence_length = dataset, sequences, steps, sequence_length

    @property
    def steps_per_iteration(self) -> int:
        """Return the steps sampled in one iteration, summed over ranks."""
        return self.num_updates * self.batch_size * self.sequence_length * self.world_size

    def train_dataloader(self) -> Any:
        """Return the dataset that samples pieces of the stored sequences."""
        assert self.trainer is not None
        rank, device = self.trainer.global_rank, self.trainer.strategy.root_device
        self.ring = buffer_of(self.stored(rank, device), self.sequence_length)
        seed = derive_seed(global_seed(), rank, "replay")
        shape = (self.num_updates, self.batch_size)
        self.dataset = StoredDataset(self.ring, shape, seed, self.iterations, self.trainer)
        return self.dataset

    @property
    def phases(self) -> dict[str, Phase[Any]]:
        """Return no phases: nothing is collected."""
        return {}

    def stored(self, rank: int, device: torch.device) -> SequenceBatch:
        """Return the sequences of the file, or a recording; the same on every rank."""
        if self.source is not None:
            found = SequenceBatch(*padded_sequences(fitted_episodes(self.source, self.spaces)))
            obs, action, contiguous = (tensor.to(device) for tensor in found)
            return SequenceBatch(require_tensor(obs).float(), action.float(), contiguous)
        where: dict[str, Any] = {"backend": self.backend, "device": device, "timeout": self.env_timeout}
        where["restart"] = self.on_env_error == "restart"
        envs = make_vector_env(self.env, self.sequences, env_kwargs=self.env_kwargs, wrappers=self.wrappers, **where)
        recorded = record(envs, self.steps, derive_seed(global_seed(), 0, "env"))
        envs.close()
        check_finite(recorded, self.env)
        return recorded


def buffer_of(sequences: SequenceBatch, sequence_length: int) -> SequenceBuffer:
    """Create a buffer whose rows are the sequences.

    Raises: ConfigurationError if they are shorter than a piece.
    """
    steps = len(sequences.contiguous)
    if sequence_length > steps:
        raise ConfigurationError(
            f"data.sequence_length is {sequence_length}, but the longest stored sequence has {steps} steps: lower"
            " data.sequence_length."
        )
    ring = SequenceBuffer(steps, sequence_length)
    ring.size = steps
    last = torch.zeros_like(sequences.contiguous[:1])
    ring.columns = {
        "obs": sequences.obs,
        "action": torch.cat([sequences.action, torch.zeros_like(sequences.action[:1])]),
        "contiguous": torch.cat([sequences.contiguous, last]),
    }
    return ring


def read_sequences(source: str | Path) -> SequenceBatch:
    """Read episodes (`datamodules.core.files.episode_files.read_episodes`), one per row.

    Steps past the end of an episode are not contiguous. Raises: ConfigurationError as there.
    """
    return SequenceBatch(*padded_sequences(read_episodes(source)))
