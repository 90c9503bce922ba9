"""A worker of the pool: a process that steps its share of the environments in a tight loop.

Neither this file nor what it imports imports torch: a worker starts in 0.3 s with 40 MB, with torch in 3 s with 230 MB.
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
from datamodules.env_interface.env_errors import breaks_contract, require_shape
from datamodules.env_interface.processes import exit_with_parent, ignore_stops, restart_seed
from datamodules.worker_pool.shared_memory import Array, Layout, Shared, shared_arrays

STEP, RESET = 0, 2
"""What an order asks for; the half it is for (0 or 1) is added to it."""


SLOTS = 4
"""Orders that can wait at once; a worker never has more than one a half to serve."""


LOOK = 0.25
"""Seconds between two looks at the health of the other side while nothing comes from it."""


SPINS = 200
"""Tries before a process that waits goes to sleep where processes share cores, about 0.07 ms.

Microseconds from an order to its answer, mean of 3000 without any work in between (one worker, and two of them on two
cores that others use too): asleep at once on a semaphore 178 and 129, on an event 5 and 63, on a pipe 38 and 10; 1000
tries without giving way 4 and 219; 100 tries, giving way after each, 6 and 13. CartPole-v1 x 64 in two workers there:
90, 116 and 96 thousand env steps a second with 0, 200 and 2000 tries.
"""


PATIENT_SPINS = 3000
"""Tries where every process has a core, about 1 ms: nobody else wants it, and to wake up costs either side.

CartPole-v1 x 64 feeding a GPU on 16 cores: 227 thousand env steps a second in 15 workers with 3000 tries, 206 thousand
in 16 with 200.
"""


CALLS = ("its start", "its reset", "its step", "the reset after its step")
"""What a worker can be busy with; `Shared.call` holds the number of one."""


_give_way: Callable[[], None] = getattr(os, "sched_yield", partial(time.sleep, 0))


def taken(semaphore: Semaphore, seconds: float, spins: int) -> bool:
    """Take from a semaphore: trying for a moment, since to wake a process costs more than a quick step; then asleep."""
    for _ in range(spins):
        if semaphore.acquire(False):
            return True
        _give_way()
    return semaphore.acquire(True, seconds)


class Seat(NamedTuple):
    """What a worker is given: its number, its rows of both halves, the shared memory and the semaphores.

    go: released by the parent for every order.   done: by every worker, the one of the half it has served.
    spins: tries before it sleeps.   restart: make an environment anew that raises.
    resumes: whether another process had this seat: it goes on with the orders, but all episodes begin anew.
    """

    number: int
    halves: tuple[slice, slice]
    memory: Any
    layout: Layout
    go: Semaphore
    done: tuple[Semaphore, Semaphore]
    spins: int
    restart: bool = False
    resumes: bool = False

    @property
    def rows(self) -> list[int]:
        """The rows of both halves, one after the other."""
        return [row for half in self.halves for row in range(half.start, half.stop)]


class Complaint(NamedTuple):
    """Why a worker ended, or why it made an environment anew.

    breach: whether environments broke their contract.   text: the error, or the traceback of one of their own.
    row: the environment that was made anew, None if the worker ended.
    """

    breach: bool
    text: str
    row: int | None = None


def work(seat: Seat, payload: bytes, complaints: Connection) -> None:
    """Serve until the pool closes, the parent is gone or an environment raises; what it raised is sent as text.

    Args:
        payload: a pickled CloudpickleWrapper around what makes the environments, and what reads their observations.
    """
    ignore_stops()
    exit_with_parent()
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    envs: dict[int, gym.Env] = {}
    try:
        shared = shared_arrays(seat.memory, seat.layout)
        shared.current[seat.number], shared.call[seat.number] = seat.rows[0], 0  # from here on it may hang
        makers, read_obs = pickle.loads(payload).fn
        for row, make in zip(seat.rows, makers, strict=True):
            shared.current[seat.number] = row
            envs[row] = make()
        _Worker(seat, shared, envs, dict(zip(seat.rows, makers, strict=True)), read_obs, complaints).serve()
    except (Exception, SystemExit) as error:
        breach = len(envs) == len(seat.rows) and breaks_contract(error)
        complaints.send(Complaint(breach, str(error) if breach else traceback.format_exc()))
    finally:
        for env in envs.values():
            with suppress(Exception):
                env.close()


class _Worker:
    def __init__(
        self,
        seat: Seat,
        shared: Shared,
        envs: dict[int, gym.Env],
        makers: dict[int, Callable[[], gym.Env]],
        read_obs: Callable[[Any], Array],
        complaints: Connection,
    ):
        self.seat, self.shared, self.envs, self.read_obs = seat, shared, envs, read_obs
        self.makers, self.complaints = makers, complaints
        self.begins = set(seat.rows) if seat.resumes else set()
        self.reward = shared.outcome.view(np.float32)[:, 0]
        self.terminated, self.truncated, self.valid = shared.outcome.view(np.bool_)[:, 4:7].T
        self.elapsed = np.zeros(len(self.reward), dtype=np.int64)

    def serve(self) -> None:
        parent, served = multiprocessing.parent_process(), int(self.shared.served[self.seat.number])
        if self.seat.resumes and self.shared.owed[self.seat.number]:
            self._serve(served - 1)
        while True:
            self.shared.current[self.seat.number] = -1
            while not taken(self.seat.go, LOOK, self.seat.spins):
                if parent is not None and not parent.is_alive():
                    return
            if self.shared.closing[0]:
                return
            served += 1
            self.shared.served[self.seat.number], self.shared.owed[self.seat.number] = served, True
            self._serve(served - 1)

    def _serve(self, number: int) -> None:
        order = int(self.shared.orders[number % SLOTS])
        half = order & 1
        serve = self._reset if order & RESET else self._step
        serve(self.seat.halves[half])
        self.shared.owed[self.seat.number] = False
        self.seat.done[half].release()

    def _reset(self, rows: slice) -> None:
        shared = self.shared
        shared.call[self.seat.number] = 1
        self.valid[rows] = True
        for row in range(rows.start, rows.stop):
            shared.current[self.seat.number] = row
            self.elapsed[row] = 0
            self.begins.discard(row)
            seed = int(shared.seed[row])
            obs, info = self._begun(row, None if seed < 0 else seed)
            shared.obs[row] = self._read(obs)
            shared.masked[row] = "action_mask" in info
            shared.action_mask[row] = self._mask(info) if shared.masked[row] else True

    def _step(self, rows: slice) -> None:
        shared, number = self.shared, self.seat.number
        shared.outcome[rows] = 0
        shared.call[number] = 2
        self.valid[rows] = True
        shared.action_mask[rows] = True
        actions = shared.action[rows].copy()  # an environment may keep what it was given
        for row, action in enumerate(actions, rows.start):
            shared.current[number] = row
            try:
                obs, self.reward[row], terminated, truncated, info = self._stepped(row, action)
            except (Exception, SystemExit) as error:
                self._make_anew(row, error)
                self.begins.add(row)
                obs, self.reward[row], terminated, truncated, info = self._stepped(row, action)
            self.elapsed[row] += 1
            if not terminated and 0 < self.elapsed[row] == shared.limit[0]:
                truncated = True
            if terminated or truncated:
                obs, info = self._end(row, obs, terminated, truncated)
            shared.obs[row] = self._read(obs)
            if "action_mask" in info:
                shared.action_mask[row] = self._mask(info)

    def _end(self, row: int, obs: Any, terminated: bool, truncated: bool) -> tuple[Any, dict[str, Any]]:
        """Keep how an episode ended, before its last observation is overwritten, and begin the next."""
        self.terminated[row], self.truncated[row], self.elapsed[row] = terminated, truncated, 0
        self.shared.final_obs[row] = self._read(obs)
        self.shared.call[self.seat.number] = 3
        began = self._begun(row, None)
        self.shared.call[self.seat.number] = 2
        return began

    def _stepped(self, row: int, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step, or the beginning of an episode where the environment was made anew since its last one."""
        if row not in self.begins:
            return self.envs[row].step(action)
        self.begins.discard(row)
        self.valid[row], self.elapsed[row] = False, -1
        seed = restart_seed(max(0, int(self.shared.seed[row])), int(self.shared.failures[self.seat.number]))
        obs, info = self.envs[row].reset(seed=seed)
        return obs, 0.0, False, False, info

    def _begun(self, row: int, seed: int | None) -> tuple[Any, dict[str, Any]]:
        """A reset, again where the environment raises and may be made anew."""
        try:
            return self.envs[row].reset(seed=seed)
        except (Exception, SystemExit) as error:
            self._make_anew(row, error)
        return self.envs[row].reset(seed=seed)

    def _make_anew(self, row: int, error: Exception | SystemExit) -> None:
        """Replace an environment that raised, and say why, unless it broke the contract or may not be replaced."""
        if not self.seat.restart or breaks_contract(error):
            raise error
        why = traceback.format_exc()
        with suppress(Exception):
            self.envs[row].close()
        self.envs[row] = self.makers[row]()
        self.complaints.send(Complaint(False, why, row))
        self.shared.failures[self.seat.number] += 1

    def _read(self, obs: Any) -> Array:
        numbers = self.read_obs(obs)
        require_shape(numbers, self.shared.obs.shape[1:], "an observation")
        return numbers

    def _mask(self, info: dict[str, Any]) -> Array:
        mask = np.asarray(info["action_mask"], dtype=np.bool_).ravel()
        require_shape(mask, self.shared.action_mask.shape[1:], "an action_mask")
        return mask
