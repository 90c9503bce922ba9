"""Signals that ask the program to stop, and the exit they lead to."""

import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

STOP_SIGNALS: tuple[signal.Signals, ...] = tuple(
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Ctrl-C, a request to end, and the loss of the terminal, which Windows does not have."""


TERMINALS = tuple(descriptor for descriptor in range(3) if os.isatty(descriptor))
"""Which of standard input, output and error were a terminal when the program began."""

HANGUP_S = 1.0
"""Seconds within which the shell and the kernel both send SIGHUP for one terminal that is closed."""


class SignalExit(SystemExit):
    """Exit because of a signal, with code 128 + its number, which shells report for a process that a signal ended."""

    def __init__(self, number: int):
        super().__init__(128 + number)


def exit_by_signal(number: int, frame: FrameType | None) -> NoReturn:
    """Exit at once; a signal handler.

    Raises: SignalExit.
    """
    silence_lost_outputs()
    raise SignalExit(number)


def terminal_is_lost() -> bool:
    """Whether the program began with a terminal that has been closed since."""
    return any(not os.isatty(descriptor) for descriptor in TERMINALS)


def silence_lost_outputs() -> None:
    """Send nowhere what would be written to a closed terminal, or a pipe whose reader has ended: both are errors."""
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
    """Tells the second stop signal from the first, and from the same loss of a terminal announced twice."""

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None

    def __call__(self, number: int) -> bool:
        """Whether a signal that comes now is another one than the first."""
        now = time.monotonic()
        if self._first is None:
            self._first = number, now
            return False
        hangup = number == self._first[0] == getattr(signal, "SIGHUP", None)
        return not (hangup and now - self._first[1] < HANGUP_S and terminal_is_lost())


def handled_signals() -> tuple[signal.Signals, ...]:
    """The signals to handle: all of `STOP_SIGNALS` but a SIGHUP that is ignored, as `nohup` has it."""
    return tuple(
        number for number in STOP_SIGNALS if number.name != "SIGHUP" or signal.getsignal(number) != signal.SIG_IGN
    )


@contextmanager
def exits_on_signal() -> Iterator[None]:
    """Exit at once on a stop signal, inside the context and unless another handler is set there."""
    in_charge = threading.current_thread() is threading.main_thread()  # Python lets no other thread set handlers
    before = {number: signal.signal(number, exit_by_signal) for number in handled_signals() if in_charge}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
