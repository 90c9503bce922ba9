"""Data for models of sequences that were stored before: files of trajectories, or a recording made at the start."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from datamodules.base import Backend, OnEnvError, require_positive
from datamodules.buffers.sequence_buffer import SequenceRing
from datamodules.collect.iteration_dataset import IterationDataset
from datamodules.collect.validation_sequences import record, require_finite
from datamodules.core.errors import UsageError
from datamodules.core.files.tensor_files import first_line, verify_checksums
from datamodules.core.phase import Joint
from datamodules.core.required_values import require_values
from datamodules.core.seeding import run_seed, stream_seed
from datamodules.core.sequence_types import SequenceExperience, Sequences
from datamodules.core.types import Scalars
from datamodules.sequence import SequenceData
from datamodules.vector.make_env import make_envs


class StoredDataset(IterationDataset):
    """Draws pieces of stored sequences.

    Args:
        ring: holds the sequences, one a row.
        shape: (U, N): minibatches an iteration, pieces in each.
        seed: of what is drawn; each iteration draws from a stream of its own, so that nothing needs to be saved.
        iterations: length of the run.
        trainer: that runs it.
    """

    def __init__(self, ring: SequenceRing, shape: tuple[int, int], seed: int, iterations: int, trainer: Any):
        super().__init__(iterations, trainer)
        self.ring, self.shape, self.seed = ring, shape, seed
        self.generator = torch.Generator(device=ring.columns["obs"].device)

    def collect(self) -> SequenceExperience:
        """Draw."""
        self.generator.manual_seed((self.seed + self.trainer.global_step) % 2**63)
        uniforms = torch.rand(*self.shape, 2, generator=self.generator, device=self.generator.device)
        chunks = self.ring.sample(uniforms, recent=0)
        episodes = Scalars(("count", "return", "length"), torch.zeros(3, dtype=torch.float64))
        return SequenceExperience(None, {}, chunks, None, chunks.joined.numel(), episodes)


class StoredData(SequenceData):
    """Offline: pieces of trajectories that a file holds. Environment steps count the steps drawn.

    Args:
        file: what `predict` wrote (`trajectories.npz`); null records `sequences` of `steps` steps at the start, with
            uniform actions held for 20 steps.
        env, env_kwargs, backend: made for the recording and for evaluation.
        sequences: number of sequences of the recording.
        steps: length of each of them.
        total_env_steps: steps drawn in the whole run, all ranks together, rounded up.
        updates: U, minibatches per iteration.
        batch_size: N, pieces in a minibatch.
        chunk: L, steps of a piece.
        held_out, held_out_steps, iterations_per_batch, env_timeout, on_env_error: as for `SequenceData`.

    Raises: UsageError for values that cannot be, and for a file that is none of ours.
    """

    acts = False

    def __init__(
        self,
        env: str,
        env_kwargs: dict[str, Any] | None = None,
        backend: Backend = "auto",
        file: str | None = None,
        sequences: int = 64,
        steps: int = 100,
        total_env_steps: int = 2_000_000,
        updates: int = 1,
        batch_size: int = 32,
        chunk: int = 50,
        held_out: int = 64,
        held_out_steps: int = 100,
        iterations_per_batch: int = 1,
        env_timeout: float | None = None,
        on_env_error: OnEnvError = "stop",
    ):
        require_values("data", StoredData, locals())
        super().__init__(
            env,
            env_kwargs,
            backend,
            num_envs=sequences,
            total_env_steps=total_env_steps,
            capacity=max(steps, chunk),
            updates=updates,
            batch_size=batch_size,
            chunk=chunk,
            held_out=held_out,
            held_out_steps=held_out_steps,
            iterations_per_batch=iterations_per_batch,
            env_timeout=env_timeout,
            on_env_error=on_env_error,
        )
        require_positive("updates", updates)
        require_positive("sequences", sequences)
        if file is not None and not Path(file).is_file():
            raise UsageError(
                f"There is no file {file}: write one with `python -m app predict`, or set data.file to null."
            )
        self.file, self.sequences, self.steps, self.chunk = file, sequences, steps, chunk
        self.save_hyperparameters()

    @property
    def steps_per_iteration(self) -> int:
        """Steps one iteration draws, all ranks together."""
        return self.updates * self.batch_size * self.chunk * self.world_size

    def train_dataloader(self) -> Any:
        """The loop: pieces of what is stored."""
        assert self.trainer is not None
        rank, device = self.trainer.global_rank, self.trainer.strategy.root_device
        self.ring = holding(self.stored(rank, device), self.chunk)
        seed = stream_seed(run_seed(), rank, "replay")
        shape = (self.updates, self.batch_size)
        self.dataset = StoredDataset(self.ring, shape, seed, self.iterations, self.trainer)
        return self.dataset

    @property
    def joints(self) -> dict[str, Joint[Any]]:
        """None: nothing is collected."""
        return {}

    def stored(self, rank: int, device: torch.device) -> Sequences:
        """The sequences of the file, or a recording: of every rank the same."""
        if self.file is not None:
            found = read_sequences(Path(self.file))
            shapes = [tuple(column.shape[2:]) for column in (found.obs, found.action)]
            if shapes != [tuple(self.spaces["obs_shape"]), (len(self.spaces["action_low"]),)]:
                raise UsageError(
                    f"{self.file} holds observations and actions of shapes {shapes}, other than those of {self.env}:"
                    " set data.env and data.env_kwargs to where it was played."
                )
            require_finite(found, str(self.file))
            obs, action, joined = (tensor.to(device) for tensor in found)
            return Sequences(obs.float(), action.float(), joined)
        where: dict[str, Any] = {"backend": self.backend, "device": device, "timeout": self.env_timeout}
        where["restart"] = self.on_env_error == "restart"
        envs = make_envs(self.env, self.sequences, env_kwargs=self.env_kwargs, **where)
        recorded = record(envs, self.steps, stream_seed(run_seed(), 0, "env"))
        envs.close()
        require_finite(recorded, self.env)
        return recorded


def holding(sequences: Sequences, chunk: int) -> SequenceRing:
    """A ring whose rows are the sequences.

    Raises: UsageError if they are shorter than a piece.
    """
    steps = len(sequences.joined)
    if chunk > steps:
        raise UsageError(f"data.chunk is {chunk}, but the longest stored sequence has {steps} steps: lower data.chunk.")
    ring = SequenceRing(steps, chunk)
    ring.size = steps
    last = torch.zeros_like(sequences.joined[:1])
    ring.columns = {
        "obs": sequences.obs,
        "action": torch.cat([sequences.action, torch.zeros_like(sequences.action[:1])]),
        "joined": torch.cat([sequences.joined, last]),
    }
    return ring


def read_sequences(path: Path) -> Sequences:
    """Read the episodes of a file that `predict` wrote, one a row; behind the end of a shorter one nothing is joined.

    Raises: UsageError if the file is damaged or none of ours; nothing in it is ever executed.
    """
    try:
        verify_checksums(path)
        with np.load(path, allow_pickle=False) as file:
            columns = {name: torch.from_numpy(file[name]) for name in ("obs", "action", "episode_start", "obs_start")}
    except Exception as error:  # a damaged file can make NumPy raise anything
        raise UsageError(
            f"{path} is no file of trajectories, or damaged ({first_line(error)}): write it anew with `predict`, or"
            " set data.file to null."
        ) from None
    if problem := inconsistency(columns):
        raise UsageError(f"{path} is no file of trajectories ({problem}): write it anew with `predict`.")
    begin, first = columns["episode_start"].tolist(), columns["obs_start"].tolist()
    actions = [columns["action"][a:b] for a, b in pairwise(begin)]
    obs = [columns["obs"][a:b] for a, b in pairwise(first)]
    joined = [torch.ones(len(action), dtype=torch.bool) for action in actions]
    return Sequences(side_by_side(obs), side_by_side(actions), side_by_side(joined))


def inconsistency(columns: dict[str, Tensor]) -> str:
    """Say what keeps columns from being episodes one after the other (see `read_sequences`); empty if nothing does."""
    begin, first = columns["episode_start"], columns["obs_start"]
    if begin.dim() != 1 or begin.shape != first.shape or len(begin) < 2:
        return f"its starts of episodes are of shapes {list(begin.shape)} and {list(first.shape)}"
    if begin.dtype != torch.int64 or first.dtype != torch.int64 or begin[0] != 0 or (begin.diff() < 1).any():
        return "its starts of episodes are no whole numbers that rise from 0"
    if (first - begin != torch.arange(len(begin))).any():
        return "its episodes do not have one observation more than actions"
    for name, ends in (("action", begin), ("obs", first)):
        column = columns[name]
        if column.dim() < 2 or not column.dtype.is_floating_point or len(column) != ends[-1]:
            return f"its {name} is {column.dtype} of shape {list(column.shape)}, for {ends[-1]} entries"
    return ""


def side_by_side(sequences: list[Tensor]) -> Tensor:
    """Sequences of any length as columns `[longest, N, ...]`, zero behind their ends."""
    return torch.nn.utils.rnn.pad_sequence(sequences)
