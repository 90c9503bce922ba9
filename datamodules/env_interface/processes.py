"""Start and end processes that run environments."""

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

from datamodules.core.errors import ConfigurationError
from datamodules.core.signals import STOP_SIGNALS

WORKER_GRACE_S = 2.0
"""Seconds between two health checks of silent workers, and their grace period to end by themselves."""

ENV_TIMEOUT = 300.0
"""Default seconds for the start, a reset or a step of an environment in a process."""


def ignore_stops() -> None:
    """Ignore `STOP_SIGNALS` from now on: the parent handles them, and a forked worker would inherit its handlers."""
    for stop in STOP_SIGNALS:
        signal.signal(stop, signal.SIG_IGN)


def exit_with_parent() -> None:
    """End this process within `2 * WORKER_GRACE_S` seconds of its parent's death, whatever its main thread does."""
    Thread(target=_exit_with_parent, name="watchdog", daemon=True).start()


def _exit_with_parent() -> None:
    """Wait for the parent's end, give the main thread its grace period, and exit.

    The pipe stays open if a later forked process has inherited its other end, so the parent's process id is checked
    too; only the child of a fork server has another one from the start.
    """
    parent, number = parent_process(), os.getppid()
    if parent is None:
        return
    child = parent.pid == number
    while not wait([parent.sentinel], WORKER_GRACE_S / 2) and not (child and os.getppid() != number):
        pass
    time.sleep(WORKER_GRACE_S)
    os._exit(1)


def asked(call: str, action: Any) -> str:
    """Describe a call with its action; long actions are shortened."""
    return f"{call} with action {np.asarray(action).tolist()!s:.200}"


def hung(name: str, who: str, seconds: float, call: str) -> str:
    """Return the error message for an environment that exceeded its timeout.

    Args:
        name: name of the environment.   who: which copy.   seconds: its timeout.   call: the call that did not return.
    """
    return (
        f"{who} of {name} hung: {call} did not return within data.env_timeout ({seconds:g} s); fix the environment,"
        " or raise data.env_timeout if it is only slow."
    )


def restart_seed(seed: int, number: int) -> int:
    """Derive the seed of a restarted environment from its own seed and the number of its restart."""
    return int(np.random.SeedSequence((seed, number)).generate_state(1)[0]) & 0x7FFFFFFF


MakeEnv = Callable[[], gym.Env]


def shut_down(
    pipes: Sequence[Connection | None], processes: Sequence[BaseProcess], patience: float = WORKER_GRACE_S
) -> None:
    """Ask every worker to close, unless `patience` is 0, and kill those alive after `patience` seconds."""
    open_pipes = [pipe for pipe in pipes if pipe is not None]
    for pipe in open_pipes if patience else ():
        with suppress(OSError):
            pipe.send(("close", None))
    _join(processes, patience)
    for process in processes:
        process.kill()
    _join(processes, WORKER_GRACE_S)
    for pipe in open_pipes:
        pipe.close()


def _join(processes: Sequence[Any], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))


def require_processes(
    timeout: float | None, on_error: str, num_workers: int | None, pin_memory: bool, backend: str
) -> None:
    """Check that settings of environments in processes are only set if environments run in processes.

    Raises: ConfigurationError if they are set for another backend, if the timeout or the number is not positive, or if
    `on_error` is neither stop nor restart.
    """
    if timeout is not None and not timeout > 0:
        raise ConfigurationError(f"data.env_timeout is {timeout:g}; it must be positive; .inf disables the timeout.")
    if on_error not in ("stop", "restart"):
        raise ConfigurationError(f"data.on_env_error is {on_error!r}; choose stop or restart.")
    if num_workers is not None and (num_workers < 1 or backend != "pool"):
        raise ConfigurationError(
            f"data.num_workers is {num_workers} and data.backend {backend}; give at least 1 process, of the backend"
            " pool."
        )
    if not pin_memory and backend != "pool":
        raise ConfigurationError(
            f"data.pin_memory is false and data.backend {backend}; only the backend pool pins memory: leave it out."
        )
    asked = [] if timeout is None else [f"data.env_timeout is {timeout:g}"]
    asked += ["data.on_env_error is restart"] * (on_error == "restart")
    if asked and backend not in ("async", "pool"):
        raise ConfigurationError(
            f"{asked[0]}, but only an environment in a process can be ended or restarted, not one of backend"
            f" {backend}: set data.backend to async or pool, or leave {asked[0].split()[0]} out."
        )
