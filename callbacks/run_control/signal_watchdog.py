"""SignalWatchdog: end a process that is still running `grace` seconds after a second signal."""

import os
import signal
import threading
import time
from types import TracebackType
from typing import Self

from datamodules.core.signals import STOP_SIGNALS, SecondSignal


class SignalWatchdog:
    """Exit the process `grace` seconds after the second signal, even if the main thread is stuck.

    A Python signal handler runs only when the main thread returns to the interpreter. The interpreter itself writes the
    number of each signal with such a handler to a pipe at once, and a thread reads it. A context manager; leaving it
    does not cancel a pending exit.

    Args:
        grace: seconds for closing environments and files.
    """

    def __init__(self, grace: float):
        self.grace = grace
        self._pipe: tuple[int, int] | None = None
        self._previous_fd = -1

    def __enter__(self) -> Self:
        """Start watching; possible only in the main thread."""
        if threading.current_thread() is threading.main_thread():
            self._pipe = reader, writer = os.pipe()
            os.set_blocking(writer, False)
            self._previous_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
            threading.Thread(target=self._watch, args=(reader,), name="signals", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop watching."""
        if self._pipe is not None:
            signal.set_wakeup_fd(self._previous_fd)
            os.close(self._pipe[1])
            self._pipe = None

    def _watch(self, reader: int) -> None:
        is_second, number = SecondSignal(), 0
        while (byte := os.read(reader, 1)) and not (byte[0] in STOP_SIGNALS and is_second(number := byte[0])):
            pass
        os.close(reader)
        if byte:
            time.sleep(self.grace)
            os._exit(128 + number)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
