"""A program that steps environments in processes and is killed."""

import os
import signal
import subprocess
import sys
import time

SCRIPT = """
import itertools
import torch
from datamodules.vector.make_env import make_vector_env

if __name__ == "__main__":
    kwargs = dict(call="{call}", seconds=600)
    hanging = "tests.support.counting_env.Hanging"
    envs = make_vector_env(hanging, 4, backend="{backend}", env_kwargs=kwargs, num_workers=2)
    envs.reset(0)
    for count in itertools.count():
        if count == 1:
            print("steps", flush=True)
        envs.step(torch.zeros(4, dtype=torch.int64))
"""


def seconds_until_workers_end(backend: str, call: str, delay: float) -> float:
    """Kill such a program `delay` seconds after its first step; how long its workers live on.

    Args:
        call: which of an environment's calls does not come back in them; none if empty.
    """
    command = [sys.executable, "-c", SCRIPT.format(backend=backend, call=call)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"steps\n"
        time.sleep(delay)
        os.kill(program.pid, signal.SIGKILL)
        began = time.monotonic()
        program.stdout.read()  # until every process that has inherited it has ended
        return time.monotonic() - began
