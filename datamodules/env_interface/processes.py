"""Start and end processes that hold environments."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from threading import Thread
from typing import Any

import gymnasium as gym
import numpy as np

from datamodules.core.signals import STOP_SIGNALS

PATIENCE = 2.0
"""Seconds between two looks at the health of silent workers, and the grace they have to end by themselves."""


ENV_TIMEOUT = 300.0
"""Seconds that an environment in a process may take for its start, a reset or a step, if the user does not say."""


def ignore_stops() -> None:
    """Ignore `STOP_SIGNALS` from now on: when to stop is the parent's decision, which a fork would inherit."""
    for stop in STOP_SIGNALS:
        signal.signal(stop, signal.SIG_IGN)


def exit_with_parent() -> None:
    """Let this process end within `2 * PATIENCE` seconds of its parent's death, whatever its main thread does then."""
    Thread(target=_exit_with_parent, name="watchdog", daemon=True).start()


def _exit_with_parent() -> None:
    """Wait for the parent's end, leave the main thread its grace, and exit.

    The pipe that tells stays open where a process forked later has inherited its other end, so the parent's number is
    looked at too; only a fork server's child has another one from the start.
    """
    parent, number = parent_process(), os.getppid()
    if parent is None:
        return
    child = parent.pid == number
    while not wait([parent.sentinel], PATIENCE / 2) and not (child and os.getppid() != number):
        pass
    time.sleep(PATIENCE)
    os._exit(1)


def asked(call: str, action: Any) -> str:
    """Name a call with its action, of which a long one is cut."""
    return f"{call} with action {np.asarray(action).tolist()!s:.200}"


def hung(name: str, who: str, seconds: float, call: str) -> str:
    """Return the sentence about an environment that does not come back.

    Args:
        name: the environment.   who: which of its copies.   seconds: that were given it.   call: what it was asked for.
    """
    return (
        f"{who} of {name} hung: {call} has not come back within data.env_timeout ({seconds:g} s); mend the environment,"
        " or raise data.env_timeout if it is only slow."
    )


def restart_seed(seed: int, number: int) -> int:
    """Derive the seed of a restarted environment from its own seed and the number of its restart."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1)[0]) & 0x7FFFFFFF


MakeEnv = Callable[[], gym.Env]


def _ended(pipes: Sequence[Connection | None], processes: Sequence[BaseProcess], patience: float = PATIENCE) -> None:
    """Ask every worker to close, unless there is no patience, and kill those that have not after so many seconds."""
    open_pipes = [pipe for pipe in pipes if pipe is not None]
    for pipe in open_pipes if patience else ():
        with suppress(OSError):
            pipe.send(("close", None))
    _join(processes, patience)
    for process in processes:
        process.kill()
    _join(processes, PATIENCE)
    for pipe in open_pipes:
        pipe.close()


def _join(processes: Sequence[Any], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
