"""Sized dataset of batches, each a lazy sequence of training iterations."""

import math
from collections.abc import Iterator
from typing import Any, cast

from torch.utils.data import IterableDataset

from datamodules.core.protocols import VectorEnv


class IterationBatch:
    """Trainer batch: a sized, lazy sequence of iterations, each collected when it is iterated over."""

    def __init__(self, source: "IterationDataset", count: int):
        self.source, self.count = source, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        data = self.source.trainer.datamodule
        for _ in range(self.count):
            if getattr(data, "collector", None) is not None:
                set_env_progress(data.collector.envs, data.progress)
            yield self.source.collect()


class IterationDataset(IterableDataset):
    """Sized dataset of training iterations; subclasses implement `collect`.

    It has a length because Lightning prefetches one batch of an unsized loader, which would make the policy of every
    rollout one update old. It has no state of its own, so that an iterator can be replaced at any batch.

    Args:
        iterations: iterations of the run, including those before a resume.
        trainer: Trainer of the run; its DataModule has `iterations_per_batch`.
    """

    def __init__(self, iterations: int, trainer: Any):
        self.iterations, self.trainer = iterations, trainer

    def __len__(self) -> int:
        """Return the number of iterations, as Lightning counts (see `modules.base.lightning_progress`)."""
        return self.iterations

    def __iter__(self) -> Iterator[IterationBatch]:
        """Yield batches; the training step collects each when iterating over it."""
        while True:
            yield IterationBatch(self, batch_size(self.trainer))

    def collect(self) -> Any:
        """Return the data of one iteration."""
        raise NotImplementedError


def set_env_progress(envs: VectorEnv, progress: float) -> VectorEnv:
    """Set the progress of the run, from 0 to 1, of environments whose difficulty follows it; return them."""
    if follows_progress(envs):
        cast(Any, getattr(envs, "unwrapped", envs)).set_progress(progress)
    return envs


def follows_progress(envs: VectorEnv) -> bool:
    """Return whether the difficulty of environments follows the progress of the run."""
    return getattr(getattr(envs, "unwrapped", envs), "follows_progress", False)


def batch_size(trainer: Any) -> int:
    """Return the iterations of the next batch: `data.iterations_per_batch`, or fewer up to the next periodic event.

    Events are logging, evaluation, checkpoints and the end of the run: each happens after the same iteration as with
    one iteration per batch.
    """
    requested = trainer.datamodule.iterations_per_batch
    if requested == 1:
        return 1
    iteration = trainer.global_step
    ends = [end for end in (trainer.max_steps, trainer.num_training_batches) if 0 < end < math.inf]
    until_event = [period - iteration % period for period in _event_periods(trainer)]
    until_end = [int(end) - iteration for end in ends]
    return max(1, min(requested, *until_event, *until_end))


def _event_periods(trainer: Any) -> list[int]:
    """Return the periods of all periodic events, in iterations."""
    save_periods = [
        getattr(callback, name, 0)
        for callback in trainer.checkpoint_callbacks
        for name in ("every_n_iterations", "_every_n_train_steps")
    ]
    periods = [trainer.log_every_n_steps, trainer.val_check_batch, *save_periods]
    return [int(period) for period in periods if period is not None and 0 < period < math.inf]
