"""Worker process of the pool: steps its share of the environments in a loop.

Neither this module nor its imports import torch: a worker starts in 0.3 s with 40 MB; with torch, in 3 s with 230 MB.
"""

import multiprocessing
import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Semaphore
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from datamodules.core.signals import STOP_SIGNALS
from datamodules.env_interface.env_errors import is_return_value_error, require_shape
from datamodules.env_interface.obs_parts import assign_rows, map_parts
from datamodules.env_interface.processes import exit_with_parent, ignore_stops, restart_seed
from datamodules.worker_pool.shared_memory import Array, Layout, Shared, shared_arrays

STEP, RESET = 0, 2
"""Kinds of commands; the group (0 or 1) is added."""

QUEUE_SIZE = 4
"""Maximum number of pending commands; a worker has at most one per group."""

HEALTH_CHECK_S = 0.25
"""Seconds between two checks of the other side's health while waiting."""

SPIN_TRIES_SHARED = 200
"""Polls before a waiting process sleeps if processes share cores, about 0.07 ms.

Microseconds from a command to its result, mean of 3000 without work in between (one worker, and two workers on two
shared cores): immediate sleep on a semaphore 178 and 129, on an event 5 and 63, on a pipe 38 and 10; 1000 polls
without yielding 4 and 219; 100 polls, yielding after each, 6 and 13. CartPole-v1 x 64 in two workers on that machine:
90, 116 and 96 thousand env steps per second with 0, 200 and 2000 polls.
"""


SPIN_TRIES_DEDICATED = 3000
"""Polls if every process has its own core, about 1 ms: the core is free otherwise, and waking up has a cost.

CartPole-v1 x 64 feeding a GPU on 16 cores: 227 thousand env steps per second in 15 workers with 3000 polls, 206
thousand in 16 with 200.
"""


CALLS = ("its start", "its reset", "its step", "the reset after its step")
"""Names of a worker's calls; `Shared.call` is an index into them."""

_give_way: Callable[[], None] = getattr(os, "sched_yield", partial(time.sleep, 0))


def acquire_spinning(semaphore: Semaphore, seconds: float, spins: int) -> bool:
    """Acquire a semaphore: poll first, since waking a process takes longer than a quick step, then sleep."""
    for _ in range(spins):
        if semaphore.acquire(False):
            return True
        _give_way()
    return semaphore.acquire(True, seconds)


class WorkerSpec(NamedTuple):
    """Assignment of a worker: its number, its rows of both groups, the shared memory and the semaphores.

    go: released by the parent for every command.   done: released by every worker after a command, one per group.
    spins: polls before it sleeps.   restart: restart environments that raise.
    resumes: whether it replaces another process: it continues with the commands after resetting all its environments.
    """

    number: int
    groups: tuple[slice, slice]
    memory: Any
    layout: Layout
    go: Semaphore
    done: tuple[Semaphore, Semaphore]
    spins: int
    restart: bool = False
    resumes: bool = False

    @property
    def rows(self) -> list[int]:
        """Return the rows of both groups, one after the other."""
        return [row for half in self.groups for row in range(half.start, half.stop)]


class WorkerFailure(NamedTuple):
    """Reason why a worker ended, or why it restarted an environment.

    is_violation: whether environments violated Gymnasium's API.   text: the error, or the environment's traceback.
    row: the restarted environment, None if the worker ended.
    """

    is_violation: bool
    text: str
    row: int | None = None


def worker_main(spec: WorkerSpec, payload: bytes, failure_pipe: Connection) -> None:
    """Serve commands until the pool closes, the parent ends or an environment raises; errors are sent as text.

    Args:
        payload: pickled CloudpickleWrapper of the environment factories and the observation reader.
    """
    ignore_stops()
    exit_with_parent()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    envs: dict[int, gym.Env] = {}
    try:
        shared = shared_arrays(spec.memory, spec.layout)
        shared.current[spec.number], shared.call[spec.number] = spec.rows[0], 0  # the timeout applies from now on
        makers, read_obs = pickle.loads(payload).fn
        for row, make in zip(spec.rows, makers, strict=True):
            shared.current[spec.number] = row
            envs[row] = make()
        _Worker(spec, shared, envs, dict(zip(spec.rows, makers, strict=True)), read_obs, failure_pipe).serve()
    except (Exception, SystemExit) as error:
        is_violation = len(envs) == len(spec.rows) and is_return_value_error(error)
        failure_pipe.send(WorkerFailure(is_violation, str(error) if is_violation else traceback.format_exc()))
    finally:
        for env in envs.values():
            with suppress(Exception):
                env.close()


class _Worker:
    def __init__(
        self,
        spec: WorkerSpec,
        shared: Shared,
        envs: dict[int, gym.Env],
        makers: dict[int, Callable[[], gym.Env]],
        read_obs: Callable[[Any], Any],
        failure_pipe: Connection,
    ):
        self.spec, self.shared, self.envs, self.read_obs = spec, shared, envs, read_obs
        self.makers, self.failure_pipe = makers, failure_pipe
        self.rows_to_reset = set(spec.rows) if spec.resumes else set()
        self.reward = shared.outcome.view(np.float32)[:, 0]
        self.terminated, self.truncated, self.valid = shared.outcome.view(np.bool_)[:, 4:7].T
        self.elapsed = np.zeros(len(self.reward), dtype=np.int64)
        self.obs_shape = map_parts(lambda part: part.shape[1:], shared.obs)

    def serve(self) -> None:
        parent, served = multiprocessing.parent_process(), int(self.shared.served[self.spec.number])
        if self.spec.resumes and self.shared.owed[self.spec.number]:
            self._run_command(served - 1)
        while True:
            self.shared.current[self.spec.number] = -1
            while not acquire_spinning(self.spec.go, HEALTH_CHECK_S, self.spec.spins):
                if parent is not None and not parent.is_alive():
                    return
            if self.shared.closing[0]:
                return
            served += 1
            self.shared.served[self.spec.number], self.shared.owed[self.spec.number] = served, True
            self._run_command(served - 1)

    def _run_command(self, number: int) -> None:
        order = int(self.shared.orders[number % QUEUE_SIZE])
        half = order & 1
        serve = self._reset if order & RESET else self._step
        serve(self.spec.groups[half])
        self.shared.owed[self.spec.number] = False
        self.spec.done[half].release()

    def _reset(self, rows: slice) -> None:
        shared = self.shared
        shared.call[self.spec.number] = 1
        self.valid[rows] = True
        for row in range(rows.start, rows.stop):
            shared.current[self.spec.number] = row
            self.elapsed[row] = 0
            self.rows_to_reset.discard(row)
            seed = int(shared.seed[row])
            obs, info = self._reset_env(row, None if seed < 0 else seed)
            assign_rows(shared.obs, row, self._read(obs))
            shared.masked[row] = "action_mask" in info
            shared.action_mask[row] = self._mask(info) if shared.masked[row] else True

    def _step(self, rows: slice) -> None:
        shared, number = self.shared, self.spec.number
        shared.outcome[rows] = 0
        shared.call[number] = 2
        self.valid[rows] = True
        shared.action_mask[rows] = True
        actions = shared.action[rows].copy()  # an environment may keep a reference to its action
        for row, action in enumerate(actions, rows.start):
            shared.current[number] = row
            try:
                obs, self.reward[row], terminated, truncated, info = self._step_env(row, action)
            except (Exception, SystemExit) as error:
                self._restart_environment(row, error)
                self.rows_to_reset.add(row)
                obs, self.reward[row], terminated, truncated, info = self._step_env(row, action)
            self.elapsed[row] += 1
            if not terminated and 0 < self.elapsed[row] == shared.limit[0]:
                truncated = True
            if terminated or truncated:
                obs, info = self._end(row, obs, terminated, truncated)
            assign_rows(shared.obs, row, self._read(obs))
            if "action_mask" in info:
                shared.action_mask[row] = self._mask(info)

    def _end(self, row: int, obs: Any, terminated: bool, truncated: bool) -> tuple[Any, dict[str, Any]]:
        """Store the end of an episode and its last observation, and reset the environment."""
        self.terminated[row], self.truncated[row], self.elapsed[row] = terminated, truncated, 0
        assign_rows(self.shared.final_obs, row, self._read(obs))
        self.shared.call[self.spec.number] = 3
        began = self._reset_env(row, None)
        self.shared.call[self.spec.number] = 2
        return began

    def _step_env(self, row: int, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step an environment, or reset it if it was restarted since its last step."""
        if row not in self.rows_to_reset:
            return self.envs[row].step(action)
        self.rows_to_reset.discard(row)
        self.valid[row], self.elapsed[row] = False, -1
        seed = restart_seed(max(0, int(self.shared.seed[row])), int(self.shared.failures[self.spec.number]))
        obs, info = self.envs[row].reset(seed=seed)
        return obs, 0.0, False, False, info

    def _reset_env(self, row: int, seed: int | None) -> tuple[Any, dict[str, Any]]:
        """Reset an environment, again after a restart if it raises and restarts are enabled."""
        try:
            return self.envs[row].reset(seed=seed)
        except (Exception, SystemExit) as error:
            self._restart_environment(row, error)
        return self.envs[row].reset(seed=seed)

    def _restart_environment(self, row: int, error: Exception | SystemExit) -> None:
        """Replace an environment that raised and report why, unless it violated the API or restarts are disabled."""
        if not self.spec.restart or is_return_value_error(error):
            raise error
        why = traceback.format_exc()
        with suppress(Exception):
            self.envs[row].close()
        self.envs[row] = self.makers[row]()
        self.failure_pipe.send(WorkerFailure(False, why, row))
        self.shared.failures[self.spec.number] += 1

    def _read(self, obs: Any) -> Any:
        numbers = self.read_obs(obs)
        require_shape(numbers, self.obs_shape, "an observation")
        return numbers

    def _mask(self, info: dict[str, Any]) -> Array:
        mask = np.asarray(info["action_mask"], dtype=np.bool_).ravel()
        require_shape(mask, self.shared.action_mask.shape[1:], "an action_mask")
        return mask
