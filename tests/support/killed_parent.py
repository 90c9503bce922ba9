"""Step environments in processes until a kill: `python -m tests.support.killed_parent BACKEND CALL`."""

import itertools
import os
import signal
import subprocess
import sys
import time

from tests.support.forked_programs import ForkedPopen


def main() -> None:
    """Step environments without an end; print a line after the first step."""
    import torch  # not at the top, which every worker imports

    from datamodules.vector.make_env import make_vector_env

    backend, call = sys.argv[1:]
    kwargs = {"call": call, "seconds": 600}
    envs = make_vector_env("tests.support.counting_env.Hanging", 4, backend=backend, env_kwargs=kwargs, num_workers=2)
    envs.reset(0)
    for count in itertools.count():
        if count == 1:
            print("steps", flush=True)
        envs.step(torch.zeros(4, dtype=torch.int64))


def seconds_until_workers_end(backend: str, call: str, delay: float) -> float:
    """Kill the program `delay` seconds after its first step; return how long its workers live on.

    Args:
        call: which of an environment's calls does not come back in them; none if empty.
    """
    command = [sys.executable, "-m", "tests.support.killed_parent", backend, call]
    with ForkedPopen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"steps\n"
        time.sleep(delay)
        os.kill(program.pid, signal.SIGKILL)
        began = time.monotonic()
        program.stdout.read()  # until every process that has inherited it has ended
        return time.monotonic() - began


if __name__ == "__main__":
    main()
