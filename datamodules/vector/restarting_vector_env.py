"""RestartingVectorEnv: environments in one process each, where a failed one is restarted while the others continue."""

import multiprocessing
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper, iterate

from datamodules.env_interface.obs_parts import assign_rows
from datamodules.env_interface.processes import ENV_TIMEOUT, WORKER_GRACE_S, MakeEnv, hung, restart_seed
from datamodules.env_interface.restart_counter import RestartCounter
from datamodules.vector.async_vector_env import SubprocVectorEnv, worker_main
from datamodules.vector.sync_vector_env import Infos

Command = tuple[str, Any]


class RestartingVectorEnv(SubprocVectorEnv):
    """SubprocVectorEnv that restarts and resets an environment if it raises, crashes or exceeds the timeout.

    A failed step is not a transition: `infos["broken"]` `[B]` marks it, reward and flags are zero, and the observation
    is the first of a new episode. Errors at the start, violations of Gymnasium's API, and errors during the restart end
    all environments as in `SubprocVectorEnv`. Observations are sent through pipes: a restarted process cannot use
    Gymnasium's shared memory.

    Attributes:
        restarts: restarts so far and their limit.

    Raises: ConfigurationError, from any step or reset, for too many restarts (see `RestartCounter`).
    """

    def __init__(self, makers: Sequence[MakeEnv], *, name: str, timeout: float = ENV_TIMEOUT):
        self.restarts = RestartCounter(name, len(makers))
        self._seeds: list[int] = [0] * len(makers)
        self._commands: list[Command] = []
        super().__init__(
            makers, name=name, timeout=timeout, shared_memory=False, worker=partial(worker_main, restart=True)
        )

    def reset_async(self, seed: Any = None, options: dict[str, Any] | None = None) -> None:
        """Send reset commands to all environments or to those in `options["reset_mask"]`."""
        self._asked, self._actions = "its reset", None
        options = dict(options or {})
        mask = options.pop("reset_mask", np.ones(self.num_envs, dtype=np.bool_))
        seeds = [None] * self.num_envs if seed is None else seed
        self._seeds = [old if new is None else new for old, new in zip(self._seeds, seeds, strict=True)]
        resets: list[Command] = [("reset", {"seed": each, "options": options or None}) for each in seeds]
        self._send([reset if wanted else ("reset-noop", None) for reset, wanted in zip(resets, mask, strict=True)])

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, Infos]:
        """Wait for the resets; restart environments that fail."""
        with self._ends_on_error():
            results = self._receive_all()
        return self.observations, self._store_results(results)

    def step_async(self, actions: Any) -> None:
        """Send the actions."""
        self._asked, self._actions = "its step, or the reset after it,", actions
        self._send([("step", action) for action in iterate(self.action_space, actions)])

    def step_wait(self, timeout: float | None = None) -> tuple[Any, Any, Any, Any, Infos]:
        """Wait for the steps; restart environments that fail."""
        with self._ends_on_error():
            self.restarts.steps += self.num_envs
            results = self._receive_all()
        _, reward, terminated, truncated, _ = zip(*results, strict=True)
        return (
            self.observations,
            np.array(reward),
            np.array(terminated),
            np.array(truncated),
            self._store_results(results),
        )

    def _store_results(self, results: list[Any]) -> Infos:
        """Store the observations and infos of results, in which they are first and last."""
        infos: Infos = {}
        for row, (obs, *_, info) in enumerate(results):
            if obs is not None:  # a restarted environment that was not reset
                assign_rows(self.observations, row, obs)
            self._add_info(infos, info, row)
        return infos

    def _send(self, commands: list[Command]) -> None:
        self._commands = commands
        for row in range(self.num_envs):
            self._send_to(row)

    def _send_to(self, row: int) -> None:
        try:
            self.parent_pipes[row].send(self._commands[row])
        except OSError:
            """Its process has ended, which waiting for it finds out."""

    def _receive_all(self) -> list[Any]:
        deadline = time.monotonic() + self.timeout
        return [self._receive(row, deadline) for row in range(self.num_envs)]

    def _receive(self, row: int, deadline: float) -> Any:
        """Return an environment's result, after a restart if needed."""
        while True:
            pipe, failure = self.parent_pipes[row], ""
            try:
                if pipe.poll(max(0.0, min(WORKER_GRACE_S, deadline - time.monotonic()))):
                    result, succeeded = pipe.recv()
                    if not succeeded:
                        self._raise_if_errors([False])
                    for why in result[-1].pop("restarts", ()):
                        self.restarts.record(why)
                    return result
            except (EOFError, ConnectionError):
                self.processes[row].join(WORKER_GRACE_S)
                failure = f"Environment {row} of {self.name} crashed: exit code {self.processes[row].exitcode}."
            if not failure and time.monotonic() >= deadline:
                failure = hung(self.name, f"Environment {row}", self.timeout, self._asked_of(row))
            if failure:
                self.restarts.record(failure)
                self._restart_worker(row)
                deadline = time.monotonic() + self.timeout

    def _restart_worker(self, row: int) -> None:
        """End an environment's process, and send the last command to a new one, which resets by itself."""
        self.processes[row].kill()
        self.processes[row].join(WORKER_GRACE_S)
        self.parent_pipes[row].close()
        context = multiprocessing.get_context(self.context)
        pipe, other = context.Pipe()
        reset_seed = None if self._commands[row][0] == "reset" else restart_seed(self._seeds[row], self.restarts.count)
        make: Any = CloudpickleWrapper(self.env_fns[row])
        rest = (None, self.error_queue, self.autoreset_mode, None)
        process = context.Process(  # type: ignore[attr-defined]
            target=partial(worker_main, restart=True, reset_seed=reset_seed),
            args=(row, make, other, pipe, *rest),
            daemon=True,
        )
        process.start()
        other.close()
        self.parent_pipes[row], self.processes[row] = pipe, process
        self._send_to(row)
