"""exits_with_launcher: end a rank whose launching process has died."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

from lightning.pytorch import Trainer
from lightning.pytorch.strategies.launchers import _SubprocessScriptLauncher

POLL_SECONDS = 2.0
"""Seconds between two looks at the parent's process id."""


@contextmanager
def exits_with_launcher(trainer: Trainer) -> Iterator[None]:
    """Exit a rank that Lightning started, with code 1, within seconds of the death of the process that started it.

    Lightning starts the ranks of a machine as children of its first rank, and ends them all when a child dies. If the
    first rank itself is killed, the other ranks would wait in an NCCL collective without end. A thread watches, because
    the main thread may be in such a call.
    """
    finished = Event()
    if isinstance(trainer.strategy.launcher, _SubprocessScriptLauncher) and trainer.local_rank > 0:
        args = (trainer.global_rank, os.getppid(), finished)
        Thread(target=_exit_after, args=args, name="launcher watch", daemon=True).start()
    try:
        yield
    finally:
        finished.set()


def _exit_after(rank: int, parent: int, finished: Event) -> None:
    while os.getppid() == parent:
        if finished.wait(POLL_SECONDS):
            return
    with suppress(OSError):  # the reader of the output may have ended too
        os.write(2, f"Process {parent}, which started rank {rank}, has ended: this rank ends too.\n".encode())
    os._exit(1)
