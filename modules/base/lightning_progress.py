"""Access to Lightning's private progress counters; no other file reads or writes them.

`global_step`, evaluation, limits, resuming and loggers count iterations, however many of them a Trainer batch holds,
and the number of environment steps sets the number of iterations of the run. Written for Lightning 2.6;
`tests/modules/base/test_lightning_progress.py` fails when an attribute used in this file changes.
"""

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.optim import Optimizer


class CountingOptimizer(Optimizer):
    """Optimizer without trainable parameters, whose steps are Lightning's `global_step`: one per iteration.

    Its learning rate and weight decay are 0, for callbacks that read those of every optimizer.
    """

    def __init__(self) -> None:
        super().__init__([torch.zeros(1)], {"lr": 0.0, "weight_decay": 0.0})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Call Lightning's closure; change no weight."""
        if closure is not None:
            closure()


def iterate_counted(trainer: Any, batch: Collection[Any]) -> Iterator[Any]:
    """Iterate over a batch, and advance Lightning's counters as if each iteration were a batch.

    Args:
        trainer: in the middle of the batch, which it has counted as one.
    """
    loop, fetcher = trainer.fit_loop.epoch_loop, trainer.fit_loop._data_fetcher
    progress = loop.batch_progress
    fetcher.fetched += len(batch) - 1
    fetcher.done = progress.is_last_batch = fetcher.fetched >= fetcher.length
    for done, iteration in enumerate(batch, start=1):
        yield iteration
        if done < len(batch):
            progress.increment_processed()
            progress.increment_completed()
            loop._batches_that_stepped += 1
            progress.increment_ready()
            progress.increment_started()


def set_length(trainer: Any, iterations: int) -> None:
    """Set the number of iterations of the run, including those done; a `limit_train_batches` still acts.

    Args:
        trainer: inside `training_step`.
    """
    limit = trainer.limit_train_batches
    if isinstance(limit, float) and limit < 1:
        return  # a fraction, which Lightning applied to the initial number
    length = min(limit, iterations) if isinstance(limit, int) else iterations
    fit, fetcher = trainer.fit_loop, trainer.fit_loop._data_fetcher
    if length != fit.max_batches:
        fit.max_batches = fetcher.length = length
        fetcher.done = fit.epoch_loop.batch_progress.is_last_batch = fetcher.fetched >= length


def mark_epoch_unfinished(loops: dict[str, Any]) -> None:
    """Let a run continue that was saved at the end of a shorter one: mark its only epoch as not over.

    Args:
        loops: the state of Lightning's loops in a checkpoint; changed in place.
    """
    fit = loops["fit_loop"]
    fit["epoch_loop.batch_progress"]["is_last_batch"] = False
    for progress in fit["epoch_progress"].values():
        progress["processed"] = progress["completed"] = 0
        progress["ready"] = progress["started"] = 1
