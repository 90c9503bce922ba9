"""ThreadTuner: choose the number of torch threads by a measurement at the start of a run."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities import rank_zero_info

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.printable import counted
from datamodules.core.pytree import tree_map
from datamodules.core.types import PolicyInput

MAX_TIME_RATIO = 0.9
"""Doubling the threads must reduce the time below this fraction: otherwise the cores are better used by others."""

MAX_SLOWDOWN = 2.0
"""Slowdown by doubling the threads beyond which they are not timed again: the cores are busy."""

SAMPLE_SECONDS = 0.01
"""Duration of a call that is long enough for a measurement."""


class ThreadTuner(Callback):
    """Set torch's number of threads for the fit, print it with the reason, and restore it at the end.

    `auto` times the policy's forward and backward passes of one iteration on 1, 2, 4, ... threads, up to the cores of
    this rank (or OMP_NUM_THREADS, if lower), as long as doubling makes it more than 10 % faster and no measurement
    slower. If collection runs concurrently with learning, each uses up to half of the cores. All ranks use the choice
    of rank 0. It applies to CPUs only; on a GPU the number of threads has little effect and is unchanged. Without
    collection there is no policy call to time, and that of a population is not timed: the number is then only limited.
    A resumed run keeps its number, so that it continues bit for bit.

    Args:
        threads: auto, or the number.

    Raises: ConfigurationError if the number is not positive.
    """

    def __init__(self, threads: Literal["auto"] | int = "auto") -> None:
        if threads != "auto" and threads < 1:
            raise ConfigurationError(f"ThreadTuner's threads is {threads}; give auto, or a number of at least 1.")
        self.threads = threads
        self._chosen: int | None = None
        self._saved_threads: int | None = None
        self._previous_threads: int | None = None

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Choose, set and print the number of threads."""
        if self.threads == "auto" and trainer.strategy.root_device.type != "cpu":
            return
        self._previous_threads = torch.get_num_threads()
        chosen, reason = self._choice(trainer, pl_module)
        self._chosen = trainer.strategy.broadcast(chosen)
        torch.set_num_threads(self._chosen)
        rank_zero_info(f"Torch computes on {counted(self._chosen, 'thread')}: {reason}.")

    def _choice(self, trainer: Any, pl_module: Any) -> tuple[int, str]:
        if self.threads != "auto":
            return self.threads, "as requested"
        limit = most_threads(trainer.num_devices * (1 + len(trainer.datamodule.concurrent_phases)))
        if self._saved_threads is not None and self._saved_threads <= limit:
            return self._saved_threads, "as before the interruption"
        if limit == 1:
            shared = ", one for collecting and one for learning" * len(trainer.datamodule.concurrent_phases)
            return 1, f"there are no more cores{shared}, or OMP_NUM_THREADS is the limit"
        if trainer.datamodule.collector is None:
            return min(torch.get_num_threads(), limit), "nothing is collected, so there is no policy call to time"
        if getattr(pl_module, "num_members", 1) > 1:
            return min(torch.get_num_threads(), limit), "the policy call of a population is not timed"
        chosen, times = hill_climb(WorkloadTimer(trainer, pl_module).seconds, limit)
        timed = ", ".join(f"{seconds * 1e3:.3g} ms on {threads}" for threads, seconds in times.items())
        return chosen, f"forward and backward passes of an iteration take about {timed}"

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Restore the previous number of threads."""
        if self._previous_threads is not None:
            torch.set_num_threads(self._previous_threads)
            self._previous_threads = None

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Restore the previous number of threads."""
        self.on_train_end(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """Return the number of threads."""
        return {"threads": self._chosen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the number for the resumed run."""
        self._saved_threads = state_dict["threads"]


class WorkloadTimer:
    """Timer of the policy's work in one iteration: `act` on copies of its inputs, with and without gradient.

    It changes neither weights nor gradients nor generators: modules are in evaluation mode, noise is from a separate
    generator, and gradients are returned, not stored. Large batches are timed in part.
    """

    def __init__(self, trainer: Any, pl_module: Any):
        collector = trainer.datamodule.collector
        self.module, self.state = pl_module, collector.state
        self.autocast = trainer.precision_plugin.forward_context
        self.parameters = [parameter for parameter in pl_module.parameters() if parameter.requires_grad]
        transitions = getattr(trainer.datamodule, "transitions_per_rollout", collector.rows)
        self.act_rows = collector.rollout_length * collector.rows
        self.learn_rows = getattr(pl_module, "update_epochs", 1) * transitions
        with self._preserved_state():
            minibatch_rows = -(-transitions // getattr(pl_module, "num_minibatches", 1))
            self.act_inputs = self._sized_inputs(collector.rows, learn=False)
            self.learn_inputs = self._sized_inputs(minibatch_rows, learn=True)

    def seconds(self, threads: int) -> float:
        """Return the time of one iteration's work on that many threads; restores the number of threads."""
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with self._preserved_state():
                act = self._time(self.act_inputs, learn=False) * self.act_rows / num_rows(self.act_inputs)
                learn = self._time(self.learn_inputs, learn=True) * self.learn_rows / num_rows(self.learn_inputs)
        finally:
            torch.set_num_threads(before)
        return act + learn

    @contextmanager
    def _preserved_state(self) -> Iterator[None]:
        training = [module for module in self.module.modules() if module.training]
        self.module.eval()
        try:
            with torch.random.fork_rng(devices=[]), self.autocast():
                yield
        finally:
            for module in training:
                module.training = True

    def _sized_inputs(self, rows: int, learn: bool) -> tuple[PolicyInput, Any]:
        """Return inputs of that many rows, or of as many as are needed for a sufficiently long call."""
        inputs = self._inputs(min(rows, 64))
        while num_rows(inputs) < rows and self._time(inputs, learn) < SAMPLE_SECONDS:
            inputs = self._inputs(min(2 * num_rows(inputs), rows))
        return inputs

    def _inputs(self, rows: int) -> tuple[PolicyInput, Any]:
        """Return the input and the noise of `act` for a number of rows."""
        mask = self.state.masks.get("action_mask")
        inputs = PolicyInput(
            _repeated(self.state.obs, rows),
            self.module.initial_state(rows),
            torch.zeros(rows, dtype=torch.bool),
            None if mask is None else _repeated(mask, rows),
        )
        return inputs, self.module.noise((rows,), torch.Generator().manual_seed(0))

    def _time(self, inputs: tuple[PolicyInput, Any], learn: bool) -> float:
        """Return the seconds of the second of two calls; the first one starts the threads."""
        for _ in range(2):
            start_time = time.perf_counter()
            with torch.set_grad_enabled(learn):
                decision, _ = self.module.act(*inputs)
                outputs = [out.sum() for out in (decision.action, *decision.extras.values()) if out.requires_grad]
                if outputs:
                    torch.autograd.grad(outputs, self.parameters, allow_unused=True)
        return time.perf_counter() - start_time


def num_rows(inputs: tuple[PolicyInput, Any]) -> int:
    """Return the number of rows, also of observations of several parts."""
    return len(inputs[0].episode_start)


def hill_climb(seconds_on: Callable[[int], float], limit: int, rounds: int = 5) -> tuple[int, dict[int, float]]:
    """Double the threads, up to `limit`, as long as that is clearly faster, and never slower.

    Threads wait for each other, so that one which other programs delay delays all. A single slow measurement on more
    threads therefore means that the cores are busy.

    Returns: the number of threads, and the median seconds of each number; measurements alternate between pairs.
    """
    chosen, times = 1, dict[int, float]()
    while chosen < limit:
        more = min(2 * chosen, limit)
        pairs = [(seconds_on(chosen), seconds_on(more))]
        while len(pairs) < rounds and pairs[-1][1] < MAX_SLOWDOWN * pairs[-1][0]:
            pairs.append((seconds_on(chosen), seconds_on(more)))
        fewer_seconds, more_seconds = zip(*pairs, strict=True)
        times[chosen], times[more] = median(fewer_seconds), median(more_seconds)
        if times[more] >= MAX_TIME_RATIO * times[chosen] or max(more_seconds) > times[chosen]:
            break
        chosen = more
    return chosen, times


def most_threads(ranks: int) -> int:
    """Return the maximum number of threads of each rank on this host."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores // ranks, int(limit) if limit.isdigit() else cores))


def _repeated(rows: Any, number: int) -> Any:
    return tree_map(lambda part: part.repeat(-(-number // len(part)), *[1] * (part.dim() - 1))[:number], rows)
