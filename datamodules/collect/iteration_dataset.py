"""Iterations as Lightning is given them: an endless, sized source of batches that hold a fixed number each."""

import math
from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset


class Iterations:
    """One Trainer batch: a sized, lazy sequence of iterations, each collected when it is asked for."""

    def __init__(self, source: "IterationDataset", count: int):
        self.source, self.count = source, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.count):
            yield self.source.collect()


class IterationDataset(IterableDataset):
    """An endless source of iterations that says how many make the run; subclasses `collect` one.

    It is sized on purpose: Lightning prefetches one batch of an unsized loader, and every rollout would be one update
    stale. All state lives in what is collected from, so an iterator can be dropped and made again at any batch.

    Args:
        iterations: of the run, those before a resume included.
        trainer: that runs it; its DataModule has `iterations_per_batch`.
    """

    def __init__(self, iterations: int, trainer: Any):
        self.iterations, self.trainer = iterations, trainer

    def __len__(self) -> int:
        """Iterations in the run: Lightning counts every iteration of a batch (`modules.base.lightning_progress`)."""
        return self.iterations

    def __iter__(self) -> Iterator[Iterations]:
        """Batches, each to be collected when the training step iterates over it."""
        while True:
            yield Iterations(self, batch_size(self.trainer))

    def collect(self) -> Any:
        """What one iteration learns from."""
        raise NotImplementedError


def batch_size(trainer: Any) -> int:
    """Return the iterations of the next batch: `data.iterations_per_batch`, or fewer up to the next thing due.

    Due are a log, an evaluation, a checkpoint and the end of the run: each happens after the same iteration as with
    one iteration a batch.
    """
    asked = trainer.datamodule.iterations_per_batch
    if asked == 1:
        return 1
    done = trainer.global_step
    ends = [end for end in (trainer.max_steps, trainer.num_training_batches) if 0 < end < math.inf]
    left = [*(period - done % period for period in _periods(trainer)), *(int(end) - done for end in ends)]
    return max(1, min(asked, *left))


def _periods(trainer: Any) -> list[int]:
    """Numbers of iterations after which something is due, again and again."""
    saves = [
        getattr(callback, name, 0)
        for callback in trainer.checkpoint_callbacks
        for name in ("every_n_iterations", "_every_n_train_steps")
    ]
    found = [trainer.log_every_n_steps, trainer.val_check_batch, *saves]
    return [int(period) for period in found if period is not None and 0 < period < math.inf]
