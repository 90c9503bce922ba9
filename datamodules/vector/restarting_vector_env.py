"""Environments in a process each, of which one that fails is begun anew while the others go on."""

import multiprocessing
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper, iterate

from datamodules.env_interface.processes import ENV_TIMEOUT, PATIENCE, MakeEnv, hung, restart_seed
from datamodules.env_interface.restarts import Restarts
from datamodules.vector.async_vector_env import AsyncEnvs, work
from datamodules.vector.sync_vector_env import Infos

Command = tuple[str, Any]


class RestartingEnvs(AsyncEnvs):
    """As `AsyncEnvs`, but an environment that raises, dies or hangs is made and reset anew.

    Its step is then no transition: `infos["broken"]` `[B]` says so, reward and ends are zero, and the observation is
    the first of a new episode. What fails at the start, breaks Gymnasium's contract or raises again while it is made
    anew ends all of them as in `AsyncEnvs`. Observations come through pipes: a process that begins later cannot have
    Gymnasium's shared memory.

    Attributes:
        restarts: how many there were.

    Raises: UsageError, from any step or reset, for too many restarts (see `Restarts`).
    """

    def __init__(self, makers: Sequence[MakeEnv], *, name: str, timeout: float = ENV_TIMEOUT):
        self.restarts = Restarts(name, len(makers))
        self._seeds: list[int] = [0] * len(makers)
        self._commands: list[Command] = []
        super().__init__(makers, name=name, timeout=timeout, shared_memory=False, worker=partial(work, restart=True))

    def reset_async(self, seed: Any = None, options: dict[str, Any] | None = None) -> None:
        """Send the resets, of all environments or of those in `options["reset_mask"]`."""
        self._asked, self._actions = "its reset", None
        options = dict(options or {})
        mask = options.pop("reset_mask", np.ones(self.num_envs, dtype=np.bool_))
        seeds = [None] * self.num_envs if seed is None else seed
        self._seeds = [old if new is None else new for old, new in zip(self._seeds, seeds, strict=True)]
        resets: list[Command] = [("reset", {"seed": each, "options": options or None}) for each in seeds]
        self._send([reset if wanted else ("reset-noop", None) for reset, wanted in zip(resets, mask, strict=True)])

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, Infos]:
        """Wait for the resets; environments that fail are made anew."""
        with self._ends_on_error():
            answers = self._answers()
        return self.observations, self._kept(answers)

    def step_async(self, actions: Any) -> None:
        """Send the actions."""
        self._asked, self._actions = "its step, or the reset after it,", actions
        self._send([("step", action) for action in iterate(self.action_space, actions)])

    def step_wait(self, timeout: float | None = None) -> tuple[Any, Any, Any, Any, Infos]:
        """Wait for the steps; environments that fail are made anew."""
        with self._ends_on_error():
            self.restarts.steps += self.num_envs
            answers = self._answers()
        _, reward, terminated, truncated, _ = zip(*answers, strict=True)
        return self.observations, np.array(reward), np.array(terminated), np.array(truncated), self._kept(answers)

    def _kept(self, answers: list[Any]) -> Infos:
        """Keep observations and infos of answers, in which they are first and last."""
        kept: Infos = {}
        for row, (obs, *_, info) in enumerate(answers):
            if obs is not None:  # an environment made anew that was not reset
                self.observations[row] = obs
            self._add_info(kept, info, row)
        return kept

    def _send(self, commands: list[Command]) -> None:
        self._commands = commands
        for row in range(self.num_envs):
            self._send_to(row)

    def _send_to(self, row: int) -> None:
        try:
            self.parent_pipes[row].send(self._commands[row])
        except OSError:
            """Its process has ended, which waiting for it finds out."""

    def _answers(self) -> list[Any]:
        deadline = time.monotonic() + self.timeout
        return [self._answer_of(row, deadline) for row in range(self.num_envs)]

    def _answer_of(self, row: int, deadline: float) -> Any:
        """What an environment answers, if need be after it was made anew."""
        while True:
            pipe, failure = self.parent_pipes[row], ""
            try:
                if pipe.poll(max(0.0, min(PATIENCE, deadline - time.monotonic()))):
                    answer, well = pipe.recv()
                    if not well:
                        self._raise_if_errors([False])
                    for why in answer[-1].pop("restarts", ()):
                        self.restarts.note(why)
                    return answer
            except (EOFError, ConnectionError):
                self.processes[row].join(PATIENCE)
                failure = f"Environment {row} of {self.name} died: exit code {self.processes[row].exitcode}."
            if not failure and time.monotonic() >= deadline:
                failure = hung(self.name, f"Environment {row}", self.timeout, self._asked_of(row))
            if failure:
                self.restarts.note(failure)
                self._replace(row)
                deadline = time.monotonic() + self.timeout

    def _replace(self, row: int) -> None:
        """End an environment's process, and send the last command to a new one, which begins an episode by itself."""
        self.processes[row].kill()
        self.processes[row].join(PATIENCE)
        self.parent_pipes[row].close()
        context = multiprocessing.get_context(self.context)
        pipe, other = context.Pipe()
        begins = None if self._commands[row][0] == "reset" else restart_seed(self._seeds[row], self.restarts.number)
        make: Any = CloudpickleWrapper(self.env_fns[row])
        rest = (None, self.error_queue, self.autoreset_mode, None)
        process = context.Process(  # type: ignore[attr-defined]
            target=partial(work, restart=True, begins=begins), args=(row, make, other, pipe, *rest), daemon=True
        )
        process.start()
        other.close()
        self.parent_pipes[row], self.processes[row] = pipe, process
        self._send_to(row)
