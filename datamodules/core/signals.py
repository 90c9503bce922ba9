"""Handle stop signals and exit with the matching status."""

import os
import select
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

STOP_SIGNALS: tuple[signal.Signals, ...] = tuple(
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Signals that stop the program: SIGINT, SIGTERM and, except on Windows, SIGHUP."""

TERMINALS = tuple(descriptor for descriptor in range(3) if os.isatty(descriptor))
"""File descriptors among standard input, output and error that were terminals at program start."""

REPEATED_S = 1.0
"""Seconds within which two equal signals are taken as one if two programs send them: both shell and kernel send SIGHUP
when a terminal closes; a scheduler that ends all processes of a job and a program that ends its children send SIGTERM.
"""


class SignalExit(SystemExit):
    """Exit because of a signal, with status 128 + signal number, as shells report it."""

    def __init__(self, number: int):
        super().__init__(128 + number)


def exit_by_signal(number: int, frame: FrameType | None) -> NoReturn:
    """Exit at once; a signal handler.

    Raises: SignalExit.
    """
    silence_lost_outputs()
    raise SignalExit(number)


def terminal_is_lost() -> bool:
    """Return True if a terminal present at program start has been closed."""
    return any(not os.isatty(descriptor) for descriptor in TERMINALS)


def silence_lost_outputs() -> None:
    """Redirect standard output and error to null if their terminal is closed or the reader of their pipe has ended."""
    for descriptor in (1, 2):
        if _is_lost(descriptor):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)


def _is_lost(descriptor: int) -> bool:
    if descriptor in TERMINALS:
        return not os.isatty(descriptor)
    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


class SecondSignal:
    """Detector of a second stop signal; a SIGTERM or the SIGHUP of a closed terminal that comes twice counts as one."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None

    def __call__(self, number: int) -> bool:
        """Return True if this signal is a second one, distinct from the first."""
        now = time.monotonic()
        if self._first is None:
            self._first = number, now
            return False
        is_repeated = number == self._first[0] and now - self._first[1] < REPEATED_S
        hangup = number == getattr(signal, "SIGHUP", None) and terminal_is_lost()
        return not (is_repeated and (hangup or number == signal.SIGTERM))


def handled_signals() -> tuple[signal.Signals, ...]:
    """Return the signals to handle: `STOP_SIGNALS`, without SIGHUP if it is ignored (`nohup`)."""
    return tuple(
        number for number in STOP_SIGNALS if number.name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN
    )


@contextmanager
def exits_on_signal() -> Iterator[None]:
    """Exit at once on a stop signal while the context is active, unless another handler is set inside it."""
    in_charge = threading.current_thread() is threading.main_thread()  # Python lets no other thread set handlers
    before = {number: signal.signal(number, exit_by_signal) for number in handled_signals() if in_charge}
    try:
        yield
    finally:
        restore_handlers(before)


def restore_handlers(before: Mapping[signal.Signals, Any]) -> None:
    """Set signal handlers again; a SIGHUP that would end the process is ignored once its terminal is closed.

    Shell and kernel both send it then: the second one must not replace the exit status of the first.
    """
    lost = terminal_is_lost()
    for number, handler in before.items():
        hangup = number.name == "SIGHUP" and handler == signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if hangup and lost else handler)
