"""How Lightning's own counters are made to count iterations, and to go on after the end of a shorter run."""

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.optim import Optimizer


class Tick(Optimizer):
    """An optimizer of nothing: stepped once an iteration, so that Lightning's `global_step` counts iterations."""

    def __init__(self) -> None:
        super().__init__([torch.zeros(1)], {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Let Lightning's closure run; change nothing."""
        if closure is not None:
            closure()


def counted(trainer: Any, batch: Collection[Any]) -> Iterator[Any]:
    """The iterations of a batch; Lightning counts each as a batch, when it is done.

    Evaluation, limits, resuming and the end of the run then go by iterations, whatever a batch holds.

    Args:
        trainer: in the middle of the batch, which it has counted as one.
    """
    fetcher, progress = trainer.fit_loop._data_fetcher, trainer.fit_loop.epoch_loop.batch_progress
    fetcher.fetched += len(batch) - 1
    fetcher.done = progress.is_last_batch = fetcher.fetched >= fetcher.length
    for done, iteration in enumerate(batch, start=1):
        yield iteration
        if done < len(batch):
            progress.increment_processed()
            progress.increment_completed()
            progress.increment_ready()
            progress.increment_started()


def reopen(loops: dict[str, Any]) -> None:
    """Let a run go on that was saved at the end of a shorter one: its only epoch is not over yet.

    Args:
        loops: the state of Lightning's loops in a checkpoint; changed in place.
    """
    fit = loops["fit_loop"]
    fit["epoch_loop.batch_progress"]["is_last_batch"] = False
    for progress in fit["epoch_progress"].values():
        progress["processed"] = progress["completed"] = 0
        progress["ready"] = progress["started"] = 1
