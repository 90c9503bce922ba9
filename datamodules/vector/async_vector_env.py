"""Step Gymnasium environments in a process each, without hanging and without hiding an error."""

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.util import Finalize
from typing import Any, cast

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import _async_worker
from gymnasium.vector.utils import iterate

from datamodules.core.errors import UsageError
from datamodules.env_interface.env_errors import breaks_contract, require_shape
from datamodules.env_interface.processes import (
    ENV_TIMEOUT,
    PATIENCE,
    MakeEnv,
    _ended,
    asked,
    exit_with_parent,
    hung,
    ignore_stops,
    restart_seed,
)
from datamodules.vector.sync_vector_env import Infos, _add_kept


class AsyncEnvs(AsyncVectorEnv):
    """Environments in a process each, reset in the step that ends their episode.

    A worker that dies ends all of them and raises RuntimeError with the environment's number and the exit code, within
    `PATIENCE`; a worker that raises does the same with its own traceback; one that has not answered after `timeout` is
    killed with the others. Workers ignore Ctrl-C, SIGTERM and SIGHUP: the run decides; they end with their parent.

    Args:
        name: the environment, for messages.
        timeout: seconds that an environment may take for its start, a reset or a step (with the reset after it).
        shared_memory: for observations, which else come through pipes.   worker: what a process runs.

    Raises: UsageError, from any of these, for an environment that takes longer.
    """

    def __init__(
        self,
        makers: Sequence[MakeEnv],
        *,
        name: str,
        timeout: float = ENV_TIMEOUT,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        shared_memory: bool = True,
        worker: Callable[..., None] | None = None,
    ):
        self.name, self.timeout = name, timeout
        self.parent_pipes, self.processes = [], []
        self._asked, self._actions = "its start", cast(Any, None)
        with self._ends_on_error():
            how: dict[str, Any] = {"worker": worker or work, "autoreset_mode": autoreset_mode}
            super().__init__(makers, shared_memory, copy=False, **how)
        self._end = Finalize(self, _ended, (self.parent_pipes, self.processes), exitpriority=10)

    def reset_async(self, *args: Any, **kwargs: Any) -> None:
        """Send the resets."""
        self._asked, self._actions = "its reset", None
        with self._ends_on_error():
            super().reset_async(*args, **kwargs)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, Infos]:
        """Wait for the resets, or for the death of a worker."""
        with self._ends_on_error():
            self._wait_for_workers()
            return super().reset_wait(timeout)

    def step_async(self, actions: Any) -> None:
        """Send the actions."""
        self._asked, self._actions = "its step, or the reset after it,", actions
        with self._ends_on_error():
            super().step_async(actions)

    def step_wait(self, timeout: float | None = None) -> tuple[Any, Any, Any, Any, Infos]:
        """Wait for the steps, or for the death of a worker."""
        with self._ends_on_error():
            self._wait_for_workers()
            return super().step_wait(timeout)

    def close_extras(self, timeout: float | None = PATIENCE, terminate: bool = False) -> None:
        """Ask every worker to close and end those that have not after `timeout` seconds; at once if `terminate`."""
        patience = PATIENCE if timeout is None else timeout
        _ended(self.parent_pipes, self.processes, patience=0.0 if terminate else patience)

    def _check_spaces(self) -> None:
        """As Gymnasium's, which would wait for ever for an environment that is not made."""
        self.call_async("render_mode")
        self._wait_for_workers()
        self.call_wait()
        super()._check_spaces()

    def _add_info(self, vector_infos: Infos, env_info: Infos, env_num: int) -> Infos:
        return _add_kept(vector_infos, env_info, env_num, self.num_envs) if env_info else vector_infos

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """As Gymnasium's, which also prints the traceback of every worker."""
        if not all(successes):
            *_, error, _ = self.error_queue.get()
            raise error

    def _wait_for_workers(self) -> None:
        deadline = time.monotonic() + self.timeout
        for row, (pipe, process) in enumerate(zip(self.parent_pipes, self.processes, strict=True)):
            while not pipe.poll(max(0.0, min(PATIENCE, deadline - time.monotonic()))):
                if process.exitcode is not None:
                    raise EOFError
                if time.monotonic() >= deadline:
                    raise UsageError(hung(self.name, f"Environment {row}", self.timeout, self._asked_of(row)))

    def _asked_of(self, row: int) -> str:
        """What an environment was asked for last, with its action."""
        if self._actions is None:
            return self._asked
        return asked(self._asked, [*iterate(self.action_space, self._actions)][row])

    @contextmanager
    def _ends_on_error(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError):
            message = self._obituary()
            self.close(terminate=True)
            raise RuntimeError(message) from None
        except BaseException:
            self.close(terminate=True)
            raise

    def _obituary(self) -> str:
        """Who died and how; a pipe closes a moment before its process has an exit code."""
        deadline = time.monotonic() + PATIENCE
        codes: dict[int, int] = {}
        while not codes and time.monotonic() < deadline:
            time.sleep(0.01)
            codes = {row: each.exitcode for row, each in enumerate(self.processes) if each.exitcode is not None}
        row, code = next(iter(codes.items()), ("?", "unknown"))
        return (
            f"Environment {row} of {self.name} died: its process ended with exit code {code} and no Python error "
            "(negative codes are signals; -9 is often a lack of memory)."
        )


class _Worker(gym.Wrapper):
    """An environment in a process of its own.

    What it raises becomes a RuntimeError that any process can read, with the traceback in it; an error over what it
    returned stays what it is. The last observation of an episode is copied, because the reset that follows may write
    into the same array.

    Args:
        make: makes the environment.   row: its number.
        restart: make it anew where it raises; an info then holds why, under `restarts`, and a broken step's `broken`.
        begins: the seed of the episode that the first step begins instead of stepping, if any.
    """

    def __init__(self, make: MakeEnv, row: int, restart: bool = False, begins: int | None = None):
        super().__init__(make())
        self.make, self.row, self.restart, self.begins, self.failures = make, row, restart, begins, 0
        self._seed, self._shape = begins or 0, self.env.observation_space.shape or ()

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Infos]:
        if self.begins is not None:
            return self._broken(self.begins)
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
            require_shape(obs, self._shape, "an observation")
        except (Exception, SystemExit) as error:
            return self._broken(restart_seed(self._seed, self.failures), [self._made_anew(error)])
        return (np.array(obs) if terminated or truncated else obs), reward, terminated, truncated, info

    def reset(self, **kwargs: Any) -> tuple[Any, Infos]:
        self.begins, seed = None, kwargs.get("seed")
        self._seed = self._seed if seed is None else seed
        try:
            return self._reset(**kwargs)
        except (Exception, SystemExit) as error:
            why = self._made_anew(error)
        obs, info = self._reset(**kwargs)
        return obs, {**info, "restarts": [why]}

    def _reset(self, **kwargs: Any) -> tuple[Any, Infos]:
        obs, info = self.env.reset(**kwargs)
        require_shape(obs, self._shape, "an observation")
        return obs, info

    def _broken(self, seed: int, why: Sequence[str] = ()) -> tuple[Any, Any, bool, bool, Infos]:
        """What a step that failed brings: the first observation of a new episode."""
        self.begins = None
        obs, info = self._reset(seed=seed)
        return obs, 0.0, False, False, {**info, "restarts": list(why), "broken": True}

    def _made_anew(self, error: Exception | SystemExit) -> str:
        """Replace the environment, which raised; why, as text."""
        if breaks_contract(error):
            raise error
        why = f"Environment {self.row} raised in its own process:\n{traceback.format_exc()}"
        if not self.restart:
            raise RuntimeError(why) from None
        with suppress(Exception):
            self.env.close()
        self.env, self.failures = self.make(), self.failures + 1
        return why


def work(row: int, make: MakeEnv, *args: Any, restart: bool = False, begins: int | None = None) -> None:
    """Serve an environment until it is closed or the parent is gone; see `_Worker` for `restart` and `begins`."""
    ignore_stops()
    exit_with_parent()
    torch.set_num_threads(1)
    _async_worker(row, lambda: _Worker(make, row, restart, begins), *args)
