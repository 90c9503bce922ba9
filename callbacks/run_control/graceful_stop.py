"""Ctrl-C, SIGTERM and SIGHUP, obeyed where nothing is torn: at the boundary of an iteration, or in an evaluation."""

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn

from callbacks.run_control.resume_commands import command
from datamodules.core.files.printable import printable
from datamodules.core.signals import SecondSignal, SignalExit, exit_by_signal, handled_signals, silence_lost_outputs

WORDS = b"\nStopping after this iteration; Ctrl-C again stops at once, and loses what is not saved.\n"


class Interrupt(Callback):
    """Ends the run after the iteration in which SIGINT, SIGTERM or SIGHUP came, and says how to resume it.

    An evaluation under way ends at once and counts for nothing; other ranks end theirs, which do not count either. A
    stop is asked of the Trainer before the checkpoint callback's turn, which saves the last checkpoint; the final
    evaluation is skipped. A rank that was told to stop stops all. A second signal, of whichever kind, exits at once
    with 128 + its number, and nothing more is saved. A SIGHUP that the process ignores (`nohup`) stays ignored.
    Lightning's own treatment of SIGTERM gives way during training and is back afterwards; where only episodes are
    played, which it would wait for, the first signal exits.

    Attributes:
        stopped_by: the signal that ended the run; None if none did.
    """

    acts_per_iteration = False

    def __init__(self) -> None:
        self.stopped_by: signal.Signals | None = None
        self._received: signal.Signals | None = None
        self._is_second = SecondSignal()
        self._replaced: dict[signal.Signals, Any] = {}
        self._says_so = True
        self._evaluates: int | float = 1.0

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Take the signals over, in the main thread, where Python lets us."""
        self.stopped_by = self._received = None
        self._is_second = SecondSignal()
        self._says_so = trainer.is_global_zero
        if threading.current_thread() is threading.main_thread():
            for number in handled_signals():
                self._replaced[number] = signal.signal(number, self.receive)

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Remember the signal; called by Python in between any two instructions, so it does no more.

        Raises: SignalExit for a second one.
        """
        silence_lost_outputs()
        if self._is_second(number):
            raise SignalExit(number)
        if self._received is None and self._says_so:
            with suppress(OSError):  # what read our output may have ended with the same Ctrl-C
                os.write(2, WORDS)
        self._received = signal.Signals(number)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Stop if any rank was told to; the weights and environments are between two iterations here."""
        self._stop_if_told(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Let the episodes be given up when a signal comes."""
        if trainer.state.fn == TrainerFn.VALIDATING:
            self.on_test_start(trainer, pl_module)
        dataset: Any = trainer.val_dataloaders
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking and hasattr(dataset, "interrupted"):
            dataset.interrupted = lambda: self._received is not None

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Stop here rather than after one more iteration."""
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._give_back()
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self._stop_if_told(trainer)

    def on_test_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Let a signal end what has nothing to save."""
        if threading.current_thread() is threading.main_thread():
            for number in handled_signals():
                self._replaced[number] = signal.signal(number, exit_by_signal)

    on_predict_start = on_test_start

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Give the signal back."""
        self._give_back()

    on_predict_end = on_test_end

    def _stop_if_told(self, trainer: Trainer) -> None:
        number = int(self._received or 0)
        if trainer.world_size > 1:
            told = torch.tensor(number, device=trainer.strategy.root_device)
            number = int(trainer.strategy.reduce(told, reduce_op="max"))
        if number and self.stopped_by is None:
            self.stopped_by = signal.Signals(number)
            silence_lost_outputs()  # by now what read them has ended, if it ended with the same Ctrl-C
            trainer.should_stop = True
            self._evaluates, trainer.limit_val_batches = trainer.limit_val_batches, 0

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Give the signals back; say what was saved and how to go on."""
        self._give_back()
        if self.stopped_by is None:
            return
        trainer.limit_val_batches = self._evaluates
        last = getattr(trainer.checkpoint_callback, "last_model_path", "")
        if not last:
            pl_module.print(
                f"Stopped by {self.stopped_by.name}; no checkpoint callback is configured, nothing was saved."
            )
            return
        said = f"Stopped by {self.stopped_by.name} after iteration {trainer.global_step}, saved in {last}."
        pl_module.print(printable(f"{said} Resume: {command(trainer, 'fit', last)}"))

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Give the signals back; end the other ranks' processes with this one's."""
        self._give_back()
        if isinstance(exception, SignalExit) and trainer.strategy.launcher is not None:
            trainer.strategy.launcher.kill(getattr(signal, "SIGKILL", signal.SIGTERM))

    def _give_back(self) -> None:
        for number, before in self._replaced.items():
            signal.signal(number, before)
        self._replaced = {}
