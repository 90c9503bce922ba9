"""GracefulStop: handle SIGINT, SIGTERM and SIGHUP between iterations or during an evaluation."""

import os
import signal
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from torch import distributed

from callbacks.run_control.resume_commands import command
from datamodules.core.files.printable import counted, printable
from datamodules.core.signals import (
    SecondSignal,
    SignalExit,
    exit_by_signal,
    handled_signals,
    restore_handlers,
    silence_lost_outputs,
)

STOP_MESSAGE = b"\nStopping after this iteration; Ctrl-C again stops at once, without saving.\n"


class GracefulStop(Callback):
    """End the run after the iteration in which SIGINT, SIGTERM or SIGHUP arrived, and print how to resume it.

    A running evaluation ends at once and is discarded; other ranks end theirs, also discarded. The Trainer is asked to
    stop before the checkpoint callback runs, which saves the last checkpoint; the final evaluation is skipped. A signal
    on one rank stops all ranks. A second signal of any kind exits at once with 128 + its number, without saving. A
    SIGHUP that the process ignores (`nohup`) stays ignored. Lightning's SIGTERM handler is replaced during training and
    restored afterwards; while only episodes are played, for which it would wait, the first signal exits.

    Attributes:
        stopped_by: the signal that ended the run; None if none did.
    """

    acts_per_iteration = False

    def __init__(self) -> None:
        self.stopped_by: signal.Signals | None = None
        self._received: signal.Signals | None = None
        self._is_second = SecondSignal()
        self._previous_handlers: dict[signal.Signals, Any] = {}
        self._prints_message = True
        self._limit_val_batches: int | float = 1.0
        self._host_group: distributed.ProcessGroup | None = None  # a group that does not wait for the devices

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Install the signal handlers, in the main thread, as Python requires."""
        self.stopped_by = self._received = None
        self._is_second = SecondSignal()
        self._prints_message = trainer.is_global_zero
        self._host_group = distributed.new_group(backend="gloo") if trainer.world_size > 1 else None
        if threading.current_thread() is threading.main_thread():
            for number in handled_signals():
                self._previous_handlers[number] = signal.signal(number, self.receive)

    def receive(self, number: int, frame: FrameType | None) -> None:
        """Record the signal; a signal handler, which runs between any two instructions and therefore does no more.

        Raises: SignalExit for a second one.
        """
        silence_lost_outputs()
        if self._is_second(number):
            raise SignalExit(number)
        if self._received is None and self._prints_message:
            with suppress(OSError):  # the reader of the output may have ended with the same Ctrl-C
                os.write(2, STOP_MESSAGE)
        self._received = signal.Signals(number)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Stop if any rank received a signal; weights and environments are consistent between iterations."""
        self._stop_if_signalled(trainer)

    def on_validation_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Let a signal interrupt the episodes."""
        if trainer.state.fn == TrainerFn.VALIDATING:
            self.on_test_start(trainer, pl_module)
        dataset: Any = trainer.val_dataloaders
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking and hasattr(dataset, "should_stop"):
            dataset.should_stop = lambda: self._received is not None

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Stop after the evaluation rather than after one more iteration."""
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._restore_handlers(trainer)
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self._stop_if_signalled(trainer)

    def on_test_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Let a signal end the process, since there is nothing to save."""
        if threading.current_thread() is threading.main_thread():
            for number in handled_signals():
                self._previous_handlers[number] = signal.signal(number, exit_by_signal)

    on_predict_start = on_test_start

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Restore the signal handlers."""
        self._restore_handlers(trainer)

    on_predict_end = on_test_end

    def _stop_if_signalled(self, trainer: Trainer) -> None:
        number = int(self._received or 0)
        if self._host_group is not None:
            received = torch.tensor(number)
            distributed.all_reduce(received, distributed.ReduceOp.MAX, group=self._host_group)
            number = int(received)
        if number and self.stopped_by is None:
            self.stopped_by = signal.Signals(number)
            silence_lost_outputs()  # their reader may have ended with the same Ctrl-C
            trainer.should_stop = True
            self._limit_val_batches, trainer.limit_val_batches = trainer.limit_val_batches, 0

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Restore the signal handlers; print what was saved and how to resume."""
        self._restore_handlers(trainer)
        if self.stopped_by is None:
            return
        trainer.limit_val_batches = self._limit_val_batches
        stopped = f"Stopped by {self.stopped_by.name} after iteration {trainer.global_step}"
        pl_module.print(printable(stopped + saved(trainer)))

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Restore the signal handlers; end the other ranks' processes with this one."""
        self._restore_handlers(trainer)
        if isinstance(exception, SignalExit) and trainer.strategy.launcher is not None:
            trainer.strategy.launcher.kill(getattr(signal, "SIGKILL", signal.SIGTERM))

    def _restore_handlers(self, trainer: Any) -> None:
        """Restore the handlers, also a SIGHUP that is now ignored in those that Lightning restores after this."""
        restore_handlers(self._previous_handlers)
        for number in self._previous_handlers:
            if signal.getsignal(number) == signal.SIG_IGN:
                trainer._signal_connector._original_handlers[number] = signal.SIG_IGN
        self._previous_handlers = {}


def saved(trainer: Any) -> str:
    """Return the end of a sentence about a stopped run: the checkpoint to resume from, or that there is none."""
    callbacks = [each for one in trainer.checkpoint_callbacks for each in getattr(one, "members", [one])]
    lasts, bests = (
        [(path, each) for each in callbacks if (path := getattr(each, name, ""))]
        for name in ("last_model_path", "best_model_path")
    )
    for paths, where in ((lasts, "saved in"), (bests, "not saved; the best checkpoint is")):
        for path, callback in paths:
            if not getattr(callback, "save_weights_only", False):
                return f", {where} {path}. Resume: {command(trainer, 'fit', path)}"
    files = [path for path, _ in lasts or bests]
    if not files:
        return "; there is no checkpoint to resume from."
    named = files[0] if len(files) == 1 else f"{files[0]} and {counted(len(files) - 1, 'other')}"
    return f"; no run can be resumed from its checkpoints, which have weights only: {named}."
