"""Pace: run a training loop for durations requested by the parent process."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from app.timing import peak_memory_mib, synchronize


class Pace:
    """Execute commands from standard input between the iterations of a training loop; answer each with a line of JSON.

    train SECONDS: train for that duration; answers iterations, env_steps, seconds, and cpu_seconds of the process.
    bare SECONDS: answers what `bare` measures in that duration.
    facts: answers the result of `facts`, and the peak memory.
    The end of the input ends the training. A first answer, without a command, follows the first iteration.

    Standard output is reserved for answers: the loop's prints go to standard error.

    Attributes:
        device: device of the work; it is synchronized before a clock is read.
        bare, facts: see above; set by the training loop.
    """

    bare: Callable[[float], dict[str, Any]]
    facts: Callable[[], dict[str, Any]]

    def __init__(self) -> None:
        self.device, self.facts = torch.device("cpu"), dict
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._begin(0.0)

    def count(self, env_steps: int, iterations: int = 1) -> bool:
        """Count trained steps; when the time is up, report and wait for the next command.

        Returns: False when the training is to end.
        """
        self._iterations += iterations
        self._env_steps += env_steps
        if time.perf_counter() < self._end:
            return True
        synchronize(self.device)
        seconds = time.perf_counter() - self._start
        counted = {"iterations": self._iterations, "env_steps": self._env_steps}
        self._answer({**counted, "seconds": seconds, "cpu_seconds": time.process_time() - self._cpu_start})
        return self._handle_commands()

    def _handle_commands(self) -> bool:
        for line in sys.stdin:
            order, _, seconds = line.strip().partition(" ")
            if order == "train":
                self._begin(float(seconds))
                return True
            if order == "bare":
                self._answer(self.bare(float(seconds)))
            else:
                self._answer({**self.facts(), "peak_memory_mib": peak_memory_mib(self.device)})
        return False

    def _begin(self, seconds: float) -> None:
        self._iterations = self._env_steps = 0
        self._start, self._cpu_start = time.perf_counter(), time.process_time()
        self._end = self._start + seconds

    def _answer(self, values: dict[str, Any]) -> None:
        print(json.dumps(values), file=self._answers, flush=True)
