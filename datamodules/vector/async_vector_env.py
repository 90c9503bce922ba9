"""SubprocVectorEnv: step Gymnasium environments in one process each, with timeouts and complete error reports."""

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

from datamodules.core.errors import ConfigurationError
from datamodules.env_interface.env_errors import is_return_value_error, require_shape
from datamodules.env_interface.obs_parts import map_parts, obs_shape
from datamodules.env_interface.processes import (
    ENV_TIMEOUT,
    WORKER_GRACE_S,
    MakeEnv,
    asked,
    exit_with_parent,
    hung,
    ignore_stops,
    restart_seed,
    shut_down,
)
from datamodules.vector.sync_vector_env import Infos, _collect_info


class SubprocVectorEnv(AsyncVectorEnv):
    """Gymnasium's AsyncVectorEnv with same-step autoreset, timeouts, and detection of crashed workers.

    If a worker dies, all workers are ended and RuntimeError is raised with the environment's number and exit code,
    within `WORKER_GRACE_S`; if it raises, the error has the worker's traceback; if it does not answer within `timeout`,
    all workers are killed. Workers ignore Ctrl-C, SIGTERM and SIGHUP, which the parent handles; they end with the
    parent.

    Args:
        name: name of the environment in messages.
        timeout: maximum seconds for the start, a reset or a step (with the reset after it) of an environment.
        shared_memory: use shared memory for observations instead of pipes.   worker: function that a process runs.

    Raises: ConfigurationError if an environment exceeds the timeout.
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
            how: dict[str, Any] = {"worker": worker or worker_main, "autoreset_mode": autoreset_mode}
            super().__init__(makers, shared_memory, copy=False, **how)
        self._end = Finalize(self, shut_down, (self.parent_pipes, self.processes), exitpriority=10)

    def reset_async(self, *args: Any, **kwargs: Any) -> None:
        """Send the reset commands."""
        self._asked, self._actions = "its reset", None
        with self._ends_on_error():
            super().reset_async(*args, **kwargs)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, Infos]:
        """Wait for the resets, or for the crash of a worker."""
        with self._ends_on_error():
            self._wait_for_workers()
            return super().reset_wait(timeout)

    def step_async(self, actions: Any) -> None:
        """Send the actions."""
        self._asked, self._actions = "its step, or the reset after it,", actions
        with self._ends_on_error():
            super().step_async(actions)

    def step_wait(self, timeout: float | None = None) -> tuple[Any, Any, Any, Any, Infos]:
        """Wait for the steps, or for the crash of a worker."""
        with self._ends_on_error():
            self._wait_for_workers()
            return super().step_wait(timeout)

    def close_extras(self, timeout: float | None = WORKER_GRACE_S, terminate: bool = False) -> None:
        """Ask every worker to close, and terminate it after `timeout` seconds; at once if `terminate`."""
        patience = WORKER_GRACE_S if timeout is None else timeout
        shut_down(self.parent_pipes, self.processes, patience=0.0 if terminate else patience)

    def _check_spaces(self) -> None:
        """Check the spaces as Gymnasium does, with a timeout."""
        self.call_async("render_mode")
        self._wait_for_workers()
        self.call_wait()
        super()._check_spaces()

    def _add_info(self, vector_infos: Infos, env_info: Infos, env_num: int) -> Infos:
        return _collect_info(vector_infos, env_info, env_num, self.num_envs) if env_info else vector_infos

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Raise the errors as Gymnasium does, without printing the traceback of every worker."""
        if not all(successes):
            *_, error, _ = self.error_queue.get()
            raise error

    def _wait_for_workers(self) -> None:
        deadline = time.monotonic() + self.timeout
        for row, (pipe, process) in enumerate(zip(self.parent_pipes, self.processes, strict=True)):
            while not pipe.poll(max(0.0, min(WORKER_GRACE_S, deadline - time.monotonic()))):
                if process.exitcode is not None:
                    raise EOFError
                if time.monotonic() >= deadline:
                    raise ConfigurationError(hung(self.name, f"Environment {row}", self.timeout, self._asked_of(row)))

    def _asked_of(self, row: int) -> str:
        """Return the last command of an environment, with its action."""
        if self._actions is None:
            return self._asked
        return asked(self._asked, [*iterate(self.action_space, self._actions)][row])

    @contextmanager
    def _ends_on_error(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError):
            message = self._crash_message()
            self.close(terminate=True)
            raise RuntimeError(message) from None
        except BaseException:
            self.close(terminate=True)
            raise

    def _crash_message(self) -> str:
        """Return which workers died and how; waits for exit codes, since a pipe closes before its process ends."""
        deadline = time.monotonic() + WORKER_GRACE_S
        codes: dict[int, int] = {}
        while not codes and time.monotonic() < deadline:
            time.sleep(0.01)
            codes = {row: each.exitcode for row, each in enumerate(self.processes) if each.exitcode is not None}
        row, code = next(iter(codes.items()), ("?", "unknown"))
        return (
            f"Environment {row} of {self.name} crashed: its process ended with exit code {code} and no Python error "
            "(negative codes are signals; -9 is often out of memory)."
        )


class _TracebackWrapper(gym.Wrapper):
    """Wrapper of an environment in a worker process.

    Errors of the environment become RuntimeErrors with the traceback as text, which any process can unpickle; errors
    about its return values keep their type. The last observation of an episode is copied, because the reset may write
    into the same array.

    Args:
        make: creates the environment.   row: index of the environment.
        restart: create the environment again if it raises; the info then holds the reason as `restarts`, and `broken`
            for a failed step.
        reset_seed: seed with which the first step resets the environment instead of stepping it, if any.
    """

    def __init__(self, make: MakeEnv, row: int, restart: bool = False, reset_seed: int | None = None):
        super().__init__(make())
        self.make, self.row, self.restart, self.reset_seed, self.failures = make, row, restart, reset_seed, 0
        self._seed, self._shape = reset_seed or 0, obs_shape(self.env.observation_space)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, Infos]:
        if self.reset_seed is not None:
            return self._failed_step(self.reset_seed)
        try:
            obs, reward, terminated, truncated, info = self.env.step(action)
            require_shape(obs, self._shape, "an observation")
        except (Exception, SystemExit) as error:
            return self._failed_step(restart_seed(self._seed, self.failures), [self._restart_environment(error)])
        last = map_parts(np.array, obs) if terminated or truncated else obs
        return last, reward, terminated, truncated, info

    def reset(self, **kwargs: Any) -> tuple[Any, Infos]:
        self.reset_seed, seed = None, kwargs.get("seed")
        self._seed = self._seed if seed is None else seed
        try:
            return self._reset(**kwargs)
        except (Exception, SystemExit) as error:
            why = self._restart_environment(error)
        obs, info = self._reset(**kwargs)
        return obs, {**info, "restarts": [why]}

    def _reset(self, **kwargs: Any) -> tuple[Any, Infos]:
        obs, info = self.env.reset(**kwargs)
        require_shape(obs, self._shape, "an observation")
        return obs, info

    def _failed_step(self, seed: int, why: Sequence[str] = ()) -> tuple[Any, Any, bool, bool, Infos]:
        """Return the result of a failed step: the first observation of a new episode."""
        self.reset_seed = None
        obs, info = self._reset(seed=seed)
        return obs, 0.0, False, False, {**info, "restarts": list(why), "broken": True}

    def _restart_environment(self, error: Exception | SystemExit) -> str:
        """Replace the environment after an error, and return the error as text."""
        if is_return_value_error(error):
            raise error
        why = f"Environment {self.row} raised in its process:\n{traceback.format_exc()}"
        if not self.restart:
            raise RuntimeError(why) from None
        with suppress(Exception):
            self.env.close()
        self.env, self.failures = self.make(), self.failures + 1
        return why


def worker_main(row: int, make: MakeEnv, *args: Any, restart: bool = False, reset_seed: int | None = None) -> None:
    """Run an environment until it is closed or the parent ends; see `_TracebackWrapper` for the settings."""
    ignore_stops()
    exit_with_parent()
    torch.set_num_threads(1)
    _async_worker(row, lambda: _TracebackWrapper(make, row, restart, reset_seed), *args)
