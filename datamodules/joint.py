"""A joint: one of the three seams of an iteration (collect, prepare, update), as a function that knows its own cost."""

import time
from collections.abc import Callable
from typing import Generic, ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Joint(Generic[Arguments, Result]):
    """A function called once an iteration, and the time it has taken.

    On a CUDA device the time is measured by events, so that calling a joint never waits for the device; `seconds` does,
    once, when somebody wants to know.

    Args:
        function: what is called.
        device: where its work runs.
    """

    def __init__(self, function: Callable[Arguments, Result], device: torch.device):
        self.function = function
        self.device = device
        self._seconds = 0.0
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Call the function and add to its time."""
        if self.device.type == "cuda":
            return self._timed_on_device(*args, **kwargs)
        start = time.perf_counter()
        result = self.function(*args, **kwargs)
        self._seconds += time.perf_counter() - start
        return result

    def _timed_on_device(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        result = self.function(*args, **kwargs)
        end.record()
        self._events.append((start, end))
        return result

    def seconds(self) -> float:
        """Seconds spent since this was last asked."""
        if self._events:
            self._events[-1][1].synchronize()
            self._seconds += sum(start.elapsed_time(end) for start, end in self._events) / 1e3
            self._events.clear()
        spent, self._seconds = self._seconds, 0.0
        return spent
