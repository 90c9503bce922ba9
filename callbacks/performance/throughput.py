"""Throughput: log speed and the time shares of the phases."""

import time
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from datamodules.core.phase import Phase


class Throughput(Callback):
    """Log speed and shares of the wall-clock time every `trainer.log_every_n_steps` iterations and at the end.

    time/env_steps_per_s, time/updates_per_s: since the last log, without evaluation, summed over ranks.
    time/collect_share, time/prepare_share, time/update_share, time/eval_share, time/other_share (with a replay buffer
    also store and sample): fractions of the wall-clock time since the last log, on this rank; their sum is 1. Other is
    logging, checkpoints and the loop itself. Phases that run concurrently with the loop are not part of that sum: if
    the next rollout is collected concurrently, waiting for it is in other.

    Between logs it only counts, and does not synchronize with a GPU.
    """

    acts_per_iteration = False

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start counting."""
        for phase in phases(trainer, pl_module).values():
            phase.pop_seconds()
        self._begin(trainer, pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the timer of this evaluation."""
        self._eval_start = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Add the time of this evaluation."""
        if not trainer.sanity_checking and trainer.state.fn == TrainerFn.FITTING:
            self._eval_seconds += time.perf_counter() - self._eval_start

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log, if due."""
        every = trainer.log_every_n_steps
        if trainer.global_step // every > self._iteration // every or trainer.is_last_batch:
            pl_module.log_values(self.measure(trainer, pl_module))
            self._begin(trainer, pl_module)

    def measure(self, trainer: Any, pl_module: Any) -> dict[str, float]:
        """Return speeds and shares since the last log, by tag."""
        seconds = {name: phase.pop_seconds() for name, phase in phases(trainer, pl_module).items()}
        seconds["eval"] = self._eval_seconds
        elapsed = max(time.perf_counter() - self._start, 1e-9)
        training = max(elapsed - self._eval_seconds, 1e-9)
        shares = {f"time/{name}_share": spent / elapsed for name, spent in seconds.items()}
        taken = sum(spent for name, spent in seconds.items() if name not in trainer.datamodule.concurrent_phases)
        return {
            "time/env_steps_per_s": (pl_module.env_steps - self._env_steps) / training,
            "time/updates_per_s": (pl_module.updates - self._updates) / training,
            **shares,
            "time/other_share": max(0.0, 1 - taken / elapsed),
        }

    def _begin(self, trainer: Trainer, pl_module: Any) -> None:
        self._start, self._eval_seconds = time.perf_counter(), 0.0
        self._iteration = trainer.global_step
        self._env_steps, self._updates = pl_module.env_steps, pl_module.updates


def phases(trainer: Any, pl_module: Any) -> dict[str, Phase]:
    """Return the phases of an iteration by name: the data module's, then the algorithm's."""
    return {**trainer.datamodule.phases, **pl_module.phases}
