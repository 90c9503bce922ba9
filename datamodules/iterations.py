"""Iterations as Lightning is given them: an endless, sized source of batches that hold a few each."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import IterableDataset

BATCH_SECONDS = 0.03
"""What a Trainer batch should last, at least: the Trainer and its callbacks cost about 0.2 ms a batch."""


class Packing:
    """Decides how many iterations make the next batch.

    One, where an iteration takes as long as a batch should last; else as many as last so long together. No batch goes
    past an iteration after which something is due: a log, an evaluation, a checkpoint, the end of the run. The number
    is looked at again at every log, and is the same on all ranks.

    Args:
        trainer: that the batches are for.
    """

    def __init__(self, trainer: Any):
        self.trainer, self.count = trainer, 1
        self._seconds, self._iterations, self._looked = 0.0, 0, -1

    def next(self) -> int:
        """Iterations of the next batch."""
        trainer, done = self.trainer, self.trainer.global_step
        every = trainer.log_every_n_steps
        if done // every != self._looked:
            self._looked = done // every
            self._look()
        if self.count == 1:
            return 1
        ends = [end for end in (trainer.max_steps, trainer.num_training_batches) if 0 < end < math.inf]
        left = [*(period - done % period for period in self._periods()), *(int(end) - done for end in ends)]
        return min(self.count, *left)

    def timed(self, collect: Callable[[], Any], count: int) -> Iterator[Any]:
        """The iterations of a batch, with the time that collecting and learning from them takes."""
        began = time.perf_counter()
        for _ in range(count):
            yield collect()
        self._seconds += time.perf_counter() - began
        self._iterations += count

    def _look(self) -> None:
        if self._iterations:
            count = max(1, int(BATCH_SECONDS * self._iterations / max(self._seconds, 1e-9)))
            self.count = int(self.trainer.strategy.broadcast(count)) if self.trainer.world_size > 1 else count
        self._seconds, self._iterations = 0.0, 0

    def _periods(self) -> list[int]:
        """After how many iterations something is due, again and again."""
        trainer = self.trainer
        saves = [
            getattr(callback, name, 0)
            for callback in trainer.checkpoint_callbacks
            for name in ("every_n_iterations", "_every_n_train_steps")
        ]
        found = [trainer.log_every_n_steps, trainer.val_check_batch, *saves]
        return [int(period) for period in found if period is not None and 0 < period < math.inf]


class Iterations:
    """One Trainer batch: a sized, lazy sequence of iterations, each collected when it is asked for."""

    def __init__(self, source: "IterationDataset", count: int):
        self.source, self.count = source, count

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        return self.source.packing.timed(self.source.collect, self.count)


class IterationDataset(IterableDataset):
    """An endless source of iterations that says how many make the run; subclasses `collect` one.

    It is sized on purpose: Lightning prefetches one batch of an unsized loader, and everything would be one update
    stale. All state lives in what is collected from, so an iterator can be dropped and made again at any batch.

    Args:
        iterations: of the run, those before a resume included.
        trainer: that runs it.
    """

    def __init__(self, iterations: int, trainer: Any):
        self.iterations, self.trainer, self.packing = iterations, trainer, Packing(trainer)

    def __len__(self) -> int:
        """Iterations in the run: Lightning counts a batch as the iterations that it holds (`modules.tick`)."""
        return self.iterations

    def __iter__(self) -> Iterator[Iterations]:
        """Batches, each to be collected when the training step iterates over it."""
        while True:
            yield Iterations(self, self.packing.next())

    def collect(self) -> Any:
        """What one iteration learns from."""
        raise NotImplementedError
