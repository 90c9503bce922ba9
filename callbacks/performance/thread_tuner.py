"""How many threads torch computes with: measured at the start of a run, since a wrong number can cost most of it."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor

from datamodules.core.errors import UsageError

CLEARLY_FASTER = 0.9
"""Twice as many threads must take less than this share of the time: what is left over serves others, or workers."""

HOPELESS = 2.0
"""Threads that take this many times longer than half of them are not timed again: the cores are busy with others."""

SAMPLE_SECONDS = 0.01
"""A call this long says enough about longer ones."""


class Threads(Callback):
    """Sets torch's number of threads for the fit, says which and why, and restores it at the end.

    `auto` times the policy's acting and learning of one iteration on 1, 2, 4, ... threads, up to the cores this rank
    may use (or OMP_NUM_THREADS, if that is less), and goes on as long as doubling makes it more than 10 % faster. Where
    collecting goes on beside learning, either gets as many, up to half of those. All ranks take rank zero's choice. It
    acts on a CPU only; on a GPU the threads hardly matter and stay as they are. Where nothing is collected there is no
    acting to time, and they stay as they are within those limits.
    A resumed run keeps the number it had, so that it continues bit for bit.

    Args:
        threads: auto, or the number.

    Raises: UsageError if the number is not positive.
    """

    def __init__(self, threads: Literal["auto"] | int = "auto") -> None:
        if threads != "auto" and threads < 1:
            raise UsageError(f"Threads' threads is {threads}; give auto, or a number of at least 1.")
        self.threads = threads
        self._chosen: int | None = None
        self._resumed: int | None = None
        self._before: int | None = None

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Choose, set and say."""
        if self.threads == "auto" and trainer.strategy.root_device.type != "cpu":
            return
        self._before = torch.get_num_threads()
        chosen, reason = self._choice(trainer, pl_module)
        self._chosen = trainer.strategy.broadcast(chosen)
        torch.set_num_threads(self._chosen)
        rank_zero_info(f"Torch computes on {counted(self._chosen)}: {reason}.")

    def _choice(self, trainer: Any, pl_module: Any) -> tuple[int, str]:
        if self.threads != "auto":
            return self.threads, "as asked for"
        limit = most_threads(trainer.num_devices * (1 + len(trainer.datamodule.beside)))
        if self._resumed is not None and self._resumed <= limit:
            return self._resumed, "as before the interruption"
        if limit == 1:
            shared = ", one for collecting and one for learning" * len(trainer.datamodule.beside)
            return 1, f"there are no more cores{shared}, or OMP_NUM_THREADS forbids it"
        if trainer.datamodule.collector is None:
            return min(torch.get_num_threads(), limit), "nothing is collected, so there is no acting to time"
        chosen, times = climb(Sample(trainer, pl_module).seconds, limit)
        timed = ", ".join(f"{seconds * 1e3:.3g} ms on {threads}" for threads, seconds in times.items())
        return chosen, f"acting and learning of an iteration take about {timed}"

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Restore the number of before."""
        if self._before is not None:
            torch.set_num_threads(self._before)
            self._before = None

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Restore the number of before."""
        self.on_train_end(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """The number chosen."""
        return {"threads": self._chosen}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep the number for the resumed run."""
        self._resumed = state_dict["threads"]


class Sample:
    """The policy's work in one iteration, stood in for by `act`, with and without gradient, on copies of its inputs.

    It changes neither weights nor gradients nor any generator: modules are in evaluation mode meanwhile, noise comes
    from a generator of its own, and gradients are returned, not stored. Large batches are timed in part.
    """

    def __init__(self, trainer: Any, pl_module: Any):
        collector = trainer.datamodule.collector
        self.module, self.live = pl_module, collector.live
        self.autocast = trainer.precision_plugin.forward_context
        self.parameters = [parameter for parameter in pl_module.parameters() if parameter.requires_grad]
        transitions = getattr(trainer.datamodule, "rows_per_rollout", collector.rows)
        self.act_rows = collector.horizon * collector.rows
        self.learn_rows = getattr(pl_module, "passes", 1) * transitions
        with self._undisturbed():
            self.act_inputs = self._fitting(collector.rows, learn=False)
            self.learn_inputs = self._fitting(-(-transitions // getattr(pl_module, "minibatches", 1)), learn=True)

    def seconds(self, threads: int) -> float:
        """Time of one iteration's work on that many threads; leaves their number as it found it."""
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with self._undisturbed():
                act = self._time(self.act_inputs, learn=False) * self.act_rows / len(self.act_inputs["obs"])
                learn = self._time(self.learn_inputs, learn=True) * self.learn_rows / len(self.learn_inputs["obs"])
        finally:
            torch.set_num_threads(before)
        return act + learn

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        training = [module for module in self.module.modules() if module.training]
        self.module.eval()
        try:
            with torch.random.fork_rng(devices=[]), self.autocast():
                yield
        finally:
            for module in training:
                module.training = True

    def _fitting(self, rows: int, learn: bool) -> dict[str, Any]:
        """Inputs of that many rows, or of as many as make a call long enough."""
        inputs = self._inputs(min(rows, 64))
        while len(inputs["obs"]) < rows and self._time(inputs, learn) < SAMPLE_SECONDS:
            inputs = self._inputs(min(2 * len(inputs["obs"]), rows))
        return inputs

    def _inputs(self, rows: int) -> dict[str, Any]:
        mask = self.live.masks.get("action_mask")
        return {
            "obs": _repeated(self.live.obs, rows),
            "state": self.module.initial_state(rows),
            "reset": torch.zeros(rows, dtype=torch.bool),
            "mask": None if mask is None else _repeated(mask, rows),
            "noise": self.module.noise((rows,), torch.Generator().manual_seed(0)),
        }

    def _time(self, inputs: dict[str, Any], learn: bool) -> float:
        """Seconds of the second of two calls: the first one wakes the threads."""
        for _ in range(2):
            begun = time.perf_counter()
            with torch.set_grad_enabled(learn):
                decision, _ = self.module.act(**inputs)
                outputs = [out.sum() for out in (decision.action, *decision.extras.values()) if out.requires_grad]
                if outputs:
                    torch.autograd.grad(outputs, self.parameters, allow_unused=True)
        return time.perf_counter() - begun


def climb(seconds_on: Callable[[int], float], limit: int, rounds: int = 5) -> tuple[int, dict[int, float]]:
    """Double the threads, up to `limit`, as long as that is clearly faster.

    Returns: the number of threads, and the median seconds on each number that was tried; pairs take turns.
    """
    chosen, times = 1, dict[int, float]()
    while chosen < limit:
        more = min(2 * chosen, limit)
        pairs = [(seconds_on(chosen), seconds_on(more))]
        while len(pairs) < rounds and pairs[-1][1] < HOPELESS * pairs[-1][0]:
            pairs.append((seconds_on(chosen), seconds_on(more)))
        times[chosen], times[more] = (median(seconds) for seconds in zip(*pairs, strict=True))
        if times[more] >= CLEARLY_FASTER * times[chosen]:
            break
        chosen = more
    return chosen, times


def most_threads(ranks: int) -> int:
    """Threads that each of the ranks on this host may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return max(1, min(cores // ranks, int(asked) if asked.isdigit() else cores))


def counted(threads: int) -> str:
    """The number in words."""
    return f"{threads} thread{'s' * (threads != 1)}"


def _repeated(rows: Tensor, number: int) -> Tensor:
    return rows.repeat(-(-number // len(rows)), *[1] * (rows.dim() - 1))[:number]
