"""Two CPU processes of one process group that call functions for the tests.

`python -m tests.support.two_ranks` is one of them: it reads pickled calls from stdin and answers on stdout.
"""

import os
import pickle
import select
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Self, cast

from tests.support.forked_programs import ForkedPopen

ROOT = Path(__file__).resolve().parents[2]


class TwoRanks:
    """The two processes; they start with the first call, and anew after a call that failed."""

    def __init__(self) -> None:
        self.ranks: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start both processes, which write what they print into one file."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.printed = tempfile.TemporaryFile()  # noqa: SIM115  (open while both live)
        self.read = 0
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        command = [sys.executable, "-m", "tests.support.two_ranks"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.printed}
        for rank in ("0", "1"):
            environment |= {"RANK": rank, "LOCAL_RANK": rank}
            self.ranks.append(ForkedPopen(command, env=environment, **pipes))

    def run(self, function: Callable[..., None], *args: Any) -> str:
        """Call a function of a module with the same arguments in both processes; what they printed meanwhile.

        Raises:
            AssertionError: with the traceback if it failed in one of them.
        """
        if not self.ranks:
            self.start()
        for rank in self.ranks:
            pickle.dump((function, args), cast(IO[bytes], rank.stdin))
            cast(IO[bytes], rank.stdin).flush()
        answers = {cast(IO[bytes], rank.stdout): rank for rank in self.ranks}
        try:
            while answers:
                for answer in select.select([*answers], [], [])[0]:
                    error = pickle.load(answer)
                    assert not error, error
                    del answers[answer]
        except BaseException:
            self.close()
            raise
        printed = os.pread(self.printed.fileno(), 1_000_000, self.read).decode()
        self.read += len(printed.encode())
        return printed

    def close(self) -> None:
        """End both processes."""
        for rank in self.ranks:
            rank.kill()
            rank.communicate()
        self.ranks.clear()


def main() -> None:
    """Answer the calls of this process."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    while True:
        try:
            function, args = pickle.load(sys.stdin.buffer)
        except EOFError:  # the tests have ended
            return
        try:
            function(*args)
            error = ""
        except BaseException:
            error = traceback.format_exc()
        sys.stdout.flush()
        pickle.dump(error, answer)
        answer.flush()


if __name__ == "__main__":
    main()
