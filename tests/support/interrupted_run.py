"""A callback that sends a signal to its own process, once in a run."""

import os
from typing import Any

from lightning.pytorch import Callback, Trainer


class SendsSignal(Callback):
    """Send a signal after an iteration, unless the run was resumed.

    Args:
        number: of the signal.   iteration: after which it is sent.
    """

    acts_per_iteration = True

    def __init__(self, number: int, iteration: int):
        self.number, self.iteration = number, iteration

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if trainer.ckpt_path is None and trainer.global_step == self.iteration:
            os.kill(os.getpid(), self.number)
