"""IntervalCallback: base class of callbacks that measure at an interval of iterations."""

from typing import Any

from lightning.pytorch import Callback, Trainer

from datamodules.core.errors import ConfigurationError


class IntervalCallback(Callback):
    """Log the values of `measure` on rank 0 after every `every_n_iterations` iterations; nothing is computed in others.

    Args:
        every_n_iterations: iterations between two measurements.

    Raises: ConfigurationError if it is below 1.
    """

    acts_per_iteration = False

    def __init__(self, every_n_iterations: int):
        if every_n_iterations < 1:
            raise ConfigurationError(
                f"{type(self).__name__}'s every_n_iterations is {every_n_iterations}; it must be at least 1."
            )
        self.every_n_iterations = every_n_iterations

    def measure(self, module: Any) -> dict[str, float]:
        """Return the values by tag; none if there is nothing to measure."""
        raise NotImplementedError

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Begin to count."""
        self._iteration = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log, if due."""
        every, before = self.every_n_iterations, self._iteration
        self._iteration = trainer.global_step
        due = trainer.is_global_zero and self._iteration // every > before // every
        if due and (values := self.measure(pl_module)):
            pl_module.log_values(values)
