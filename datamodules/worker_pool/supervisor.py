"""The workers of a pool as its parent sees them: started, given orders, waited for, mourned and ended."""

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

from datamodules.core.errors import UsageError
from datamodules.core.signals import STOP_SIGNALS
from datamodules.env_interface.env_errors import breach
from datamodules.env_interface.processes import PATIENCE, MakeEnv, asked, hung
from datamodules.env_interface.restarts import Restarts
from datamodules.worker_pool.shared_memory import Array, Layout, needed, shared_arrays
from datamodules.worker_pool.worker import CALLS, LOOK, SLOTS, Complaint, Seat, taken, work

Halves = tuple[slice, slice]


class Crew:
    """Processes that serve both halves of the environments, each a share of either.

    They start at once and build their environments while the parent goes on; the first `wait` waits for that as well.
    A worker that dies, or whose environment raises, ends all of them and raises RuntimeError in `wait`, within `LOOK`
    seconds: with the environment's number and the exit code, or with the worker's own traceback. One that is in the
    same call of an environment for longer than `timeout` does so too.

    Args:
        makers: one an environment.
        read_obs: from an environment's observation to the numbers that are shared.
        halves: the rows of either half.
        num_workers: how many processes.
        spins: tries before a process that waits goes to sleep.
        layout: of what is shared.
        timeout: seconds that an environment may take for its start, a reset or a step.
        restarts: counts environments that are made anew after they raised, died or hung; None: these end all workers. A
            process that dies or hangs takes all of its environments with it, whose episodes begin anew.
        name: the environment, for messages.

    Raises: UsageError if the makers cannot be sent to another process; `wait` does if environments hang or break
    Gymnasium's contract.
    """

    def __init__(
        self,
        makers: Sequence[MakeEnv],
        read_obs: Callable[[Any], Array],
        *,
        halves: Halves,
        num_workers: int,
        spins: int,
        layout: Layout,
        timeout: float,
        restarts: Restarts | None,
        name: str,
    ):
        context = multiprocessing.get_context("spawn")
        self.name, self.spins, self.timeout, self._given, self._owed = name, spins, timeout, 0, [0, 0]
        self.restarts, self._noted = restarts, 0
        self._seen: dict[int, tuple[tuple[int, ...], float]] = {}
        self.memory = context.RawArray("B", needed(layout))
        self.shared = shared_arrays(self.memory, layout)
        self.shared.current[:] = -1
        self._done = (context.Semaphore(0), context.Semaphore(0))
        shares = [_shares(halves, number, num_workers) for number in range(num_workers)]
        common = (self.memory, layout)
        self._seats = [
            Seat(number, share, *common, context.Semaphore(0), self._done, spins, restarts is not None)
            for number, share in enumerate(shares)
        ]
        self._payloads = [_payload(makers, read_obs, seat, name) for seat in self._seats]
        self.processes: list[SpawnProcess] = []
        self._complaints: list[Connection] = []
        parts = (self.shared.closing, self._seats, self.processes, self._complaints)
        self._end = Finalize(self, _ended, parts, exitpriority=10)
        with _ends_on_error(self):
            for seat in self._seats:
                process, complaints = self._started(seat)
                self.processes.append(process)
                self._complaints.append(complaints)

    def order(self, kind: int, half: int) -> None:
        """Tell every worker what to do for its share of a half.

        Raises: RuntimeError if the half is still busy or the workers have ended.
        """
        if self._owed[half] or self.shared.closing[0]:
            why = "has been closed" if self.shared.closing[0] else f"still steps half {half}: receive it first"
            raise RuntimeError(f"The pool of {self.name} {why}.")
        self.shared.orders[self._given % SLOTS] = kind + half
        self._given += 1
        self._owed[half] = len(self._seats)
        for seat in self._seats:
            seat.go.release()

    def wait(self, half: int) -> None:
        """Wait until every worker has served the half.

        Raises: UsageError if an environment hung; RuntimeError if a worker died or raised, or if the half has no order.
        """
        if not self._owed[half]:
            raise RuntimeError(f"Half {half} of the pool of {self.name} does not step: send it actions first.")
        with _ends_on_error(self):
            while self._owed[half]:
                if taken(self._done[half], LOOK, self.spins):
                    self._owed[half] -= 1
                else:
                    self._look()
            if self.restarts is not None and self.shared.failures.sum() != self._noted:
                self._note_failures()

    def busy(self, half: int) -> bool:
        """Whether a half has an order that was not waited for."""
        return self._owed[half] > 0

    def close(self) -> None:
        """End the workers: those that have not after `PATIENCE` seconds are killed."""
        self._end()
        self._owed = [0, 0]

    def _look(self) -> None:
        for seat, process, complaints in zip(self._seats, self.processes, self._complaints, strict=True):
            code = process.exitcode  # before the pipe is read: who complained and ended has complained first
            complaint = self._last_complaint(complaints)
            if complaint is not None and complaint.breach:
                raise UsageError(breach(self.name, self.shared.obs.shape[1:], complaint.text))
            if complaint is not None:
                raise RuntimeError(f"{self._suspect(seat)} raised in its own process:\n{complaint.text}")
            if code is not None:
                died = (
                    f"{self._suspect(seat)} of {self.name} died: its process ended with exit code {code} and no Python "
                    "error (negative codes are signals; -9 is often a lack of memory)."
                )
                self._replace(seat, RuntimeError(died))
            self._require_progress(seat)

    def _started(self, seat: Seat) -> tuple[SpawnProcess, Connection]:
        """A process for a seat, and the pipe it complains through."""
        context = multiprocessing.get_context("spawn")
        complaints, sender = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(seat, self._payloads[seat.number], sender), daemon=True)
        with _start_conditions():
            process.start()
        sender.close()
        return process, complaints

    def _replace(self, seat: Seat, error: Exception) -> None:
        """Give a seat to a new process, which begins all its episodes anew.

        Raises: the error if environments may not be made anew, or never were made.
        """
        number = seat.number
        if self.restarts is None or not self.shared.served[number]:
            raise error
        self.restarts.note(str(error))
        self.processes[number].kill()
        self.processes[number].join(PATIENCE)
        self._complaints[number].close()
        self.shared.current[number] = -1
        self._seen.pop(number, None)
        self.processes[number], self._complaints[number] = self._started(seat._replace(resumes=True))

    def _note_failures(self) -> None:
        """Count the environments that workers have made anew."""
        self._noted = int(self.shared.failures.sum())
        for pipe in self._complaints:
            while complaint := _received(pipe):
                self._note(complaint)

    def _last_complaint(self, pipe: Connection) -> Complaint | None:
        """The complaint of a worker that ended, if there is one; others are counted."""
        while (complaint := _received(pipe)) is not None and complaint.row is not None:
            self._note(complaint)
        return complaint

    def _note(self, complaint: Complaint) -> None:
        assert self.restarts is not None
        self.restarts.note(f"Environment {complaint.row} raised in its own process:\n{complaint.text}")

    def _require_progress(self, seat: Seat) -> None:
        """Replace a worker that is in the same call for too long, first seen where it was looked at first."""
        shared, number, now = self.shared, seat.number, time.monotonic()
        served, row, call = (int(column[number]) for column in (shared.served, shared.current, shared.call))
        seen, since = self._seen.setdefault(number, ((served, row, call), now))
        if seen != (served, row, call):
            self._seen[number] = (served, row, call), now
        elif row >= 0 and now - since > self.timeout:
            what = asked(CALLS[call], shared.action[row]) if call > 1 else CALLS[call]
            self._replace(seat, UsageError(hung(self.name, self._suspect(seat), self.timeout, what)))

    def _suspect(self, seat: Seat) -> str:
        row = int(self.shared.current[seat.number])
        return f"Environment {row}" if row >= 0 else f"One of the environments {seat.rows}"


def _shares(halves: Halves, number: int, num_workers: int) -> Halves:
    first, second = (
        slice(*(half.start + (half.stop - half.start) * edge // num_workers for edge in (number, number + 1)))
        for half in halves
    )
    return first, second


def _payload(makers: Sequence[MakeEnv], read_obs: Callable[[Any], Array], seat: Seat, name: str) -> bytes:
    """What a worker makes its environments from; cloudpickle takes lambdas and classes of scripts and notebooks too."""
    try:
        return pickle.dumps(CloudpickleWrapper(([makers[row] for row in seat.rows], read_obs)))  # type: ignore[arg-type]
    except Exception as error:
        raise UsageError(
            f"{name} cannot be sent to the processes of a pool ({error}): choose backend sync, or define it so that it "
            "can be pickled."
        ) from error


@contextmanager
def _start_conditions() -> Iterator[None]:
    """Start processes with a thread each for numpy and torch, and with stop signals held until they can ignore them."""
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
def _ends_on_error(crew: Crew) -> Iterator[None]:
    try:
        yield
    except BaseException:
        crew.close()
        raise


def _received(complaints: Connection) -> Complaint | None:
    with suppress(EOFError, OSError):
        if complaints.poll():
            return complaints.recv()
    return None


def _ended(closing: Array, seats: list[Seat], processes: list[SpawnProcess], complaints: list[Connection]) -> None:
    closing[0] = 1
    for seat in seats:
        seat.go.release()
    deadline = time.monotonic() + PATIENCE
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    for process in processes:
        process.kill()
    for process in processes:
        process.join(PATIENCE)
    for pipe in complaints:
        pipe.close()
