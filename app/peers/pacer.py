"""Pace: lets a training loop run when, and for as long as, the process above says so."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from app.timing import peak_memory_mib, synchronize


class Pace:
    """Obeys the lines on standard input, one answer in JSON a line, between the iterations of a training loop.

    train SECONDS: go on training that long; iterations, env_steps, seconds, and cpu_seconds that the process ran.
    bare SECONDS: what `bare` measures in that time.
    facts: what `facts` says, and the peak memory.
    The end of the input ends the training. The first answer, unasked, follows the first iteration.

    Standard output belongs to the answers: what the loop prints goes to standard error.

    Attributes:
        device: where the work runs; it is waited for before a clock is read.
        bare, facts: see above; set by the loop that has something to say.
    """

    bare: Callable[[float], dict[str, Any]]
    facts: Callable[[], dict[str, Any]]

    def __init__(self) -> None:
        self.device, self.facts = torch.device("cpu"), dict
        self._answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        self._begin(0.0)

    def tick(self, env_steps: int, iterations: int = 1) -> bool:
        """Count what was trained; when the time is up, report and wait for what to do next.

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
        return self._obey()

    def _obey(self) -> bool:
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
