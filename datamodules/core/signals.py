"""Signals that ask the program to stop, and the exit they lead to."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

STOP_SIGNALS: tuple[signal.Signals, ...] = tuple(
    signal.Signals[name] for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""Ctrl-C, a request to end, and the loss of the terminal, which Windows does not have."""


class SignalExit(SystemExit):
    """Exit because of a signal, with code 128 + its number, which shells report for a process that a signal ended."""

    def __init__(self, number: int):
        super().__init__(128 + number)


def exit_by_signal(number: int, frame: FrameType | None) -> NoReturn:
    """Exit at once; a signal handler.

    Raises: SignalExit.
    """
    raise SignalExit(number)


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
