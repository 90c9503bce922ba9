"""How fast the run is, and where its time goes."""

import time
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from datamodules.core.phase import Joint


class Throughput(Callback):
    """Logs speed and shares of the wall clock every `trainer.log_every_n_steps` iterations and at the end.

    time/env_steps_per_s, time/updates_per_s: since the last log, evaluation excluded; all ranks together.
    time/collect_share, time/prepare_share, time/update_share, time/eval_share, time/other_share (with a replay also
    store and sample): of the wall clock since the last log, on this rank, in [0, 1]; they add up to 1. Other is
    logging, saving and the loop itself. What the data says works beside the loop is not part of that sum: where the
    next rollout is collected meanwhile, waiting for it is in other.

    In between it only counts, and on a GPU never waits for the device.
    """

    acts_per_iteration = False

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start counting."""
        for joint in joints(trainer, pl_module).values():
            joint.seconds()
        self._begin(trainer, pl_module)

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the clock of this evaluation."""
        self._eval_start = time.perf_counter()

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Add the time of this evaluation."""
        if not trainer.sanity_checking and trainer.state.fn == TrainerFn.FITTING:
            self._eval_seconds += time.perf_counter() - self._eval_start

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log, if it is time."""
        every = trainer.log_every_n_steps
        if trainer.global_step // every > self._iteration // every or trainer.is_last_batch:
            pl_module.log_values(self.measure(trainer, pl_module))
            self._begin(trainer, pl_module)

    def measure(self, trainer: Any, pl_module: Any) -> dict[str, float]:
        """Speeds and shares since the last log, by tag."""
        seconds = {name: joint.seconds() for name, joint in joints(trainer, pl_module).items()}
        seconds["eval"] = self._eval_seconds
        elapsed = max(time.perf_counter() - self._start, 1e-9)
        training = max(elapsed - self._eval_seconds, 1e-9)
        shares = {f"time/{name}_share": spent / elapsed for name, spent in seconds.items()}
        taken = sum(spent for name, spent in seconds.items() if name not in trainer.datamodule.beside)
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


def joints(trainer: Any, pl_module: Any) -> dict[str, Joint]:
    """The joints of an iteration, by name: the data's, then the algorithm's."""
    return {**trainer.datamodule.joints, **pl_module.joints}
