"""OfflineSequenceDataModule: sequences from a file of trajectories, or recorded at the start of the run."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.base import check_positive
from datamodules.buffers.sequence_buffer import SequenceBuffer
from datamodules.collect.iteration_dataset import IterationDataset
from datamodules.collect.validation_sequences import check_finite, record
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.tensor_files import first_line, verify_checksums
from datamodules.core.phase import Phase
from datamodules.core.required_values import require_values
from datamodules.core.seeding import derive_seed, global_seed
from datamodules.core.sequence_types import SequenceBatch, SequenceIteration
from datamodules.core.types import MetricVector
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
        file: `trajectories.npz` written by `predict`; null records `sequences` of `steps` steps at the start, with
            uniform actions held for 20 steps.
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
        file: str | None = None,
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
        if file is not None and not Path(file).is_file():
            raise ConfigurationError(
                f"There is no file {file}: write one with `python -m app predict`, or set data.file to null."
            )
        self.file, self.sequences, self.steps, self.sequence_length = file, sequences, steps, sequence_length

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
        if self.file is not None:
            found = read_sequences(Path(self.file))
            shapes = [tuple(column.shape[2:]) for column in (found.obs, found.action)]
            if shapes != [tuple(self.spaces["obs_shape"]), (len(self.spaces["action_low"]),)]:
                raise ConfigurationError(
                    f"{self.file} holds observations and actions of shapes {shapes}, other than those of {self.env}:"
                    " set data.env and data.env_kwargs to those of the recording."
                )
            check_finite(found, str(self.file))
            obs, action, contiguous = (tensor.to(device) for tensor in found)
            return SequenceBatch(obs.float(), action.float(), contiguous)
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


def read_sequences(path: Path) -> SequenceBatch:
    """Read the episodes of a file written by `predict`, one per row; steps past the end of one are not contiguous.

    Raises: ConfigurationError if the file is damaged or not written by `predict`; no code in it is executed.
    """
    try:
        verify_checksums(path)
        with np.load(path, allow_pickle=False) as file:
            columns = {name: torch.from_numpy(file[name]) for name in ("obs", "action", "episode_start", "obs_start")}
    except Exception as error:  # a damaged file can make NumPy raise anything
        raise ConfigurationError(
            f"{path} is damaged, or not a file of trajectories ({first_line(error)}): write it again with `predict`, or"
            " set data.file to null."
        ) from None
    if problem := inconsistency(columns):
        raise ConfigurationError(f"{path} is not a file of trajectories ({problem}): write it again with `predict`.")
    begin, first = columns["episode_start"].tolist(), columns["obs_start"].tolist()
    actions = [columns["action"][a:b] for a, b in pairwise(begin)]
    obs = [columns["obs"][a:b] for a, b in pairwise(first)]
    contiguous = [torch.ones(len(action), dtype=torch.bool) for action in actions]
    return SequenceBatch(pad_and_stack(obs), pad_and_stack(actions), pad_and_stack(contiguous))


def inconsistency(columns: dict[str, Tensor]) -> str:
    """Return why columns are not consecutive episodes (see `read_sequences`); empty if they are."""
    begin, first = columns["episode_start"], columns["obs_start"]
    if begin.dim() != 1 or begin.shape != first.shape or len(begin) < 2:
        return f"its episode starts have shapes {list(begin.shape)} and {list(first.shape)}"
    if begin.dtype != torch.int64 or first.dtype != torch.int64 or begin[0] != 0 or (begin.diff() < 1).any():
        return "its episode starts are not integers increasing from 0"
    if (first - begin != torch.arange(len(begin))).any():
        return "its episodes do not have one more observation than actions"
    for name, ends in (("action", begin), ("obs", first)):
        column = columns[name]
        if column.dim() < 2 or not column.dtype.is_floating_point or len(column) != ends[-1]:
            return f"its {name} is {column.dtype} of shape {list(column.shape)}, for {ends[-1]} entries"
    return ""


def pad_and_stack(sequences: list[Tensor]) -> Tensor:
    """Stack sequences of any length as columns `[longest, N, ...]`, zero-padded."""
    return torch.nn.utils.rnn.pad_sequence(sequences)
