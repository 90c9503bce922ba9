"""Parent-side supervision of pool workers: start, send commands, wait, report crashes, shut down."""

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.util import Finalize
from typing import Any

from gymnasium.vector.utils import CloudpickleWrapper

from datamodules.core.errors import ConfigurationError
from datamodules.core.signals import STOP_SIGNALS
from datamodules.env_interface.env_errors import violation_message
from datamodules.env_interface.obs_parts import map_parts
from datamodules.env_interface.processes import WORKER_GRACE_S, MakeEnv, asked, hung
from datamodules.env_interface.restart_counter import RestartCounter
from datamodules.worker_pool.shared_memory import Array, Layout, required_bytes, shared_arrays
from datamodules.worker_pool.worker import (
    CALLS,
    HEALTH_CHECK_S,
    QUEUE_SIZE,
    WorkerFailure,
    WorkerSpec,
    acquire_spinning,
    worker_main,
)

Halves = tuple[slice, slice]


class WorkerSupervisor:
    """Supervisor of worker processes, each of which steps a share of both groups of environments.

    The workers create their environments in parallel with the parent; the first `wait` waits for that too. If a worker
    dies or an environment raises, all workers are ended and `wait` raises RuntimeError within `HEALTH_CHECK_S` seconds,
    with the environment's number and the exit code, or with the worker's traceback. The same happens if one call of an
    environment exceeds `timeout`.

    Args:
        makers: environment factories, one per environment.
        read_obs: converts an environment's observation to the shared array's numbers.
        halves: rows of each of the two groups.
        num_workers: number of processes.
        spins: polls before a waiting process sleeps.
        layout: layout of the shared memory.
        timeout: maximum seconds for the start, a reset or a step of an environment.
        restarts: counter of environments restarted after an error, a crash or a timeout; None: these end all workers.
            If a process crashes or hangs, the episodes of all its environments are reset.
        name: name of the environment in messages.

    Raises: ConfigurationError if the makers cannot be pickled; `wait` raises it if environments hang or violate
        Gymnasium's API.
    """

    def __init__(
        self,
        makers: Sequence[MakeEnv],
        read_obs: Callable[[Any], Any],
        *,
        halves: Halves,
        num_workers: int,
        spins: int,
        layout: Layout,
        timeout: float,
        restarts: RestartCounter | None,
        name: str,
    ):
        context = multiprocessing.get_context("spawn")
        self.name, self.spins, self.timeout, self._sent, self._pending = name, spins, timeout, 0, [0, 0]
        self.restarts, self._recorded = restarts, 0
        self._seen: dict[int, tuple[tuple[int, ...], float]] = {}
        self.memory = context.RawArray("B", required_bytes(layout))
        self.shared = shared_arrays(self.memory, layout)
        self._obs_shape = map_parts(lambda part: part.shape[1:], self.shared.obs)
        self.shared.current[:] = -1
        self._done = (context.Semaphore(0), context.Semaphore(0))
        shares = [_shares(halves, number, num_workers) for number in range(num_workers)]
        common = (self.memory, layout)
        self._specs = [
            WorkerSpec(number, share, *common, context.Semaphore(0), self._done, spins, restarts is not None)
            for number, share in enumerate(shares)
        ]
        self._payloads = [_payload(makers, read_obs, spec, name) for spec in self._specs]
        self.processes: list[SpawnProcess] = []
        self._failure_pipes: list[Connection] = []
        parts = (self.shared.closing, self._specs, self.processes, self._failure_pipes)
        self._end = Finalize(self, _shut_down, parts, exitpriority=10)
        with _ends_on_error(self):
            for spec in self._specs:
                process, pipe = self._start_worker(spec)
                self.processes.append(process)
                self._failure_pipes.append(pipe)

    def send(self, kind: int, half: int) -> None:
        """Send a command to every worker for its share of a group.

        Raises: RuntimeError if the group is still busy or the workers have ended.
        """
        if self._pending[half] or self.shared.closing[0]:
            why = (
                "has been closed" if self.shared.closing[0] else f"has a pending step of half {half}: receive it first"
            )
            raise RuntimeError(f"The pool of {self.name} {why}.")
        self.shared.orders[self._sent % QUEUE_SIZE] = kind + half
        self._sent += 1
        self._pending[half] = len(self._specs)
        for spec in self._specs:
            spec.go.release()

    def wait(self, half: int) -> None:
        """Wait until every worker has completed the command of the group.

        Raises:
            ConfigurationError: if an environment exceeded its timeout.
            RuntimeError: if a worker crashed or raised, or if the group has no command.
        """
        if not self._pending[half]:
            raise RuntimeError(f"Half {half} of the pool of {self.name} has no pending step: send actions first.")
        with _ends_on_error(self):
            while self._pending[half]:
                if acquire_spinning(self._done[half], HEALTH_CHECK_S, self.spins):
                    self._pending[half] -= 1
                else:
                    self._check_health()
            if self.restarts is not None and self.shared.failures.sum() != self._recorded:
                self._record_restarts()

    def is_busy(self, half: int) -> bool:
        """Return whether a group has a command that was not waited for."""
        return self._pending[half] > 0

    def close(self) -> None:
        """End the workers; those still alive after `WORKER_GRACE_S` seconds are killed."""
        self._end()
        self._pending = [0, 0]

    def _check_health(self) -> None:
        for spec, process, pipe in zip(self._specs, self.processes, self._failure_pipes, strict=True):
            code = process.exitcode  # read before the pipe: a worker reports its failure before it ends
            failure = self._last_failure(pipe)
            if failure is not None and failure.is_violation:
                raise ConfigurationError(violation_message(self.name, self._obs_shape, failure.text))
            if failure is not None:
                raise RuntimeError(f"{self._describe_worker(spec)} raised in its process:\n{failure.text}")
            if code is not None:
                died = (
                    f"{self._describe_worker(spec)} of {self.name} crashed: its process ended with exit code {code} and"
                    " no Python "
                    "error (negative codes are signals; -9 is often out of memory)."
                )
                self._restart_worker(spec, RuntimeError(died))
            self._require_progress(spec)

    def _start_worker(self, spec: WorkerSpec) -> tuple[SpawnProcess, Connection]:
        """Start a worker process, and return it with its error pipe."""
        context = multiprocessing.get_context("spawn")
        pipe, sender = context.Pipe(duplex=False)
        process = context.Process(target=worker_main, args=(spec, self._payloads[spec.number], sender), daemon=True)
        with _start_conditions():
            process.start()
        sender.close()
        return process, pipe

    def _restart_worker(self, spec: WorkerSpec, error: Exception) -> None:
        """Replace a worker by a new process, which resets all its environments.

        Raises: the error if restarts are disabled, or the environments were never created.
        """
        number = spec.number
        if self.restarts is None or not self.shared.served[number]:
            raise error
        self.restarts.record(str(error))
        self.processes[number].kill()
        self.processes[number].join(WORKER_GRACE_S)
        self._failure_pipes[number].close()
        self.shared.current[number] = -1
        self._seen.pop(number, None)
        self.processes[number], self._failure_pipes[number] = self._start_worker(spec._replace(resumes=True))

    def _record_restarts(self) -> None:
        """Count the environments that workers have restarted."""
        self._recorded = int(self.shared.failures.sum())
        for pipe in self._failure_pipes:
            while failure := _receive(pipe):
                self._record_restart(failure)

    def _last_failure(self, pipe: Connection) -> WorkerFailure | None:
        """Return the failure report of a worker that ended, if there is one; count the restarts among the others."""
        while (failure := _receive(pipe)) is not None and failure.row is not None:
            self._record_restart(failure)
        return failure

    def _record_restart(self, failure: WorkerFailure) -> None:
        assert self.restarts is not None
        self.restarts.record(f"Environment {failure.row} raised in its process:\n{failure.text}")

    def _require_progress(self, spec: WorkerSpec) -> None:
        """Replace a worker that exceeds the timeout in one call, measured from its first observation."""
        shared, number, now = self.shared, spec.number, time.monotonic()
        served, row, call = (int(column[number]) for column in (shared.served, shared.current, shared.call))
        seen, since = self._seen.setdefault(number, ((served, row, call), now))
        if seen != (served, row, call):
            self._seen[number] = (served, row, call), now
        elif row >= 0 and now - since > self.timeout:
            what = asked(CALLS[call], shared.action[row]) if call > 1 else CALLS[call]
            self._restart_worker(
                spec, ConfigurationError(hung(self.name, self._describe_worker(spec), self.timeout, what))
            )

    def _describe_worker(self, spec: WorkerSpec) -> str:
        row = int(self.shared.current[spec.number])
        return f"Environment {row}" if row >= 0 else f"One of the environments {spec.rows}"


def _shares(halves: Halves, number: int, num_workers: int) -> Halves:
    first, second = (
        slice(*(half.start + (half.stop - half.start) * edge // num_workers for edge in (number, number + 1)))
        for half in halves
    )
    return first, second


def _payload(makers: Sequence[MakeEnv], read_obs: Callable[[Any], Any], spec: WorkerSpec, name: str) -> bytes:
    """Pickle the environment factories of a worker with cloudpickle, which supports lambdas and notebook classes."""
    try:
        return pickle.dumps(CloudpickleWrapper(([makers[row] for row in spec.rows], read_obs)))  # type: ignore[arg-type]
    except Exception as error:
        raise ConfigurationError(
            f"{name} cannot be sent to the processes of a pool ({error}): choose backend sync, or define it so that it "
            "can be pickled."
        ) from error


@contextmanager
def _start_conditions() -> Iterator[None]:
    """Start processes with one NumPy and one PyTorch thread, and with stop signals blocked until they ignore them."""
    threads, masks = os.environ.get("OMP_NUM_THREADS"), hasattr(signal, "pthread_sigmask")
    os.environ["OMP_NUM_THREADS"] = "1"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS) if masks else set()
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        if threads is not None:
            os.environ["OMP_NUM_THREADS"] = threads
        if masks:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _ends_on_error(crew: WorkerSupervisor) -> Iterator[None]:
    try:
        yield
    except BaseException:
        crew.close()
        raise


def _receive(pipe: Connection) -> WorkerFailure | None:
    with suppress(EOFError, OSError):
        if pipe.poll():
            return pipe.recv()
    return None


def _shut_down(
    closing: Array, specs: list[WorkerSpec], processes: list[SpawnProcess], failure_pipes: list[Connection]
) -> None:
    closing[0] = 1
    for spec in specs:
        spec.go.release()
    deadline = time.monotonic() + WORKER_GRACE_S
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    for process in processes:
        process.kill()
    for process in processes:
        process.join(WORKER_GRACE_S)
    for pipe in failure_pipes:
        pipe.close()
