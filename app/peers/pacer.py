"""Pace: run a training loop in pieces, each for a duration that the parent process requests."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

from app.timing import call, peak_memory_mib, synchronize


class Pace:
    """Execute commands from standard input between the iterations of a training loop; answer each with a line of JSON.

    train SECONDS: train for that duration; answers iterations, env_steps, seconds, and cpu_seconds of all ranks.
    bare SECONDS: answers what `bare` measures in that duration.
    facts: answers the result of `facts`, and the peak memory.
    The end of the input ends the training. A first answer, without a command, follows the first iteration that learns.

    Standard output is reserved for answers: the loop's prints go to standard error. If several ranks train, the first
    one reads the commands and the clock, and answers.

    Attributes:
        device: device of the work; it is synchronized before a clock is read.
        bare, facts: see above; set by the training loop.
        decide: returns, on every rank, the result of a function that the first rank calls.
        total: returns the sum of a number over the ranks.
    """

    bare: Callable[[float], dict[str, Any]]
    facts: Callable[[], dict[str, Any]]
    decide: Callable[[Callable[[], Any]], Any]
    total: Callable[[float], float]

    def __init__(self) -> None:
        self.device, self.facts, self.decide = torch.device("cpu"), dict, call
        self.total = float
        further_rank = os.environ.get("LOCAL_RANK", "0") != "0"
        self._answers = os.fdopen(
            os.open(os.devnull, os.O_WRONLY) if further_rank else os.dup(1), "w", encoding="utf-8"
        )
        os.dup2(2, 1)
        self._begin(0.0)

    def count(self, env_steps: int, iterations: int = 1) -> bool:
        """Count trained steps; when the time is up, report and wait for the next command.

        Returns: False when the training is to end.
        """
        self._iterations += iterations
        self._env_steps += env_steps
        if not self.decide(lambda: time.perf_counter() >= self._end):
            return True
        synchronize(self.device)
        seconds = time.perf_counter() - self._start
        counted = {"iterations": self._iterations, "env_steps": self._env_steps}
        cpu_seconds = self.total(time.process_time() - self._cpu_start)
        self._answer({**counted, "seconds": seconds, "cpu_seconds": cpu_seconds})
        return self._handle_commands()

    def _handle_commands(self) -> bool:
        while line := self.decide(sys.stdin.readline):
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
