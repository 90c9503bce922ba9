"""Programs that a verb starts: their environment variables, and their end if a signal stops the verb."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from datamodules.core.signals import (
    SecondSignal,
    SignalExit,
    handled_signals,
    restore_handlers,
    silence_lost_outputs,
)

ROOT = Path(__file__).resolve().parents[1]

GRACE = 30.0
"""Seconds in which a program may save and end after SIGTERM, before it is killed."""

STOPPING = b"\nStopping: runs in progress end after their iteration and save; Ctrl-C again kills them.\n"

_running: dict[object, subprocess.Popen[Any] | None] = {}
"""Programs that run; None for one that is being started."""

_received: list[int] = []
"""Stop signals since `exits_with_children` was entered."""


def child_environ() -> dict[str, str]:
    """Return this process's environment variables, with which a child finds all packages from any folder."""
    paths = [str(ROOT), str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def run_child(
    command: Sequence[str], environ: Mapping[str, str], *, timeout: float | None = None, **settings: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a program to its end, without an input, as `subprocess.run` and `child_process` do.

    Args:
        timeout: seconds after which it is ended.
        settings: further arguments of `subprocess.Popen`.

    Raises:
        subprocess.TimeoutExpired: after the timeout.
        SignalExit: if a stop signal arrived.
    """
    with child_process(command, environ, stdin=subprocess.DEVNULL, **settings) as process:
        out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@contextmanager
def child_process(
    command: Sequence[str], environ: Mapping[str, str], **settings: Any
) -> Iterator[subprocess.Popen[Any]]:
    """Start a program, and wait for its end on leaving, when its input is closed; an error inside ends it.

    It has a process group of its own: a Ctrl-C reaches this process only, which passes it on.

    Raises:
        SignalExit: if a stop signal arrived (see `exits_with_children`).
    """
    place = object()
    _running[place] = None
    try:
        _exit_if_stopped()
        if os.name == "posix":
            settings["process_group"] = 0
        with subprocess.Popen(command, env=environ, **settings) as process:
            _running[place] = process
            if _received:
                process.terminate()
            try:
                yield process
            except BaseException:
                _end(process)
                raise
    finally:
        del _running[place]
        _exit_if_stopped()


@contextmanager
def exits_with_children() -> Iterator[None]:
    """Exit on a stop signal with status 128 + its number, after the running programs have ended.

    The first signal sends SIGTERM to every program: a run saves and ends. Programs that still run after `GRACE`
    seconds, or when a second signal arrives, are killed. Programs are not started any more. The handlers can be set in
    the main thread only, as Python requires.
    """
    in_charge, is_second = threading.current_thread() is threading.main_thread(), SecondSignal()
    timer = threading.Timer(GRACE, _kill_all)
    timer.daemon = True

    def receive(number: int, frame: FrameType | None) -> None:
        silence_lost_outputs()
        _received.append(number)
        if not _running:
            raise SignalExit(number)
        if is_second(number):
            return _kill_all()
        if len(_received) > 1:  # the second SIGHUP of a closed terminal
            return
        with suppress(OSError):  # the reader of the output may have ended with the same Ctrl-C
            os.write(2, STOPPING)
        for process in filter(None, list(_running.values())):
            process.terminate()
        timer.start()

    before = {number: signal.signal(number, receive) for number in handled_signals() if in_charge}
    try:
        yield
    finally:
        restore_handlers(before)
        timer.cancel()
        _received.clear()


def _exit_if_stopped() -> None:
    if _received:
        raise SignalExit(_received[0])


def _kill_all() -> None:
    for process in filter(None, list(_running.values())):
        process.kill()


def _end(process: subprocess.Popen[Any]) -> None:
    """Close a program's input and end it: with SIGTERM, after `GRACE` seconds with SIGKILL."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
