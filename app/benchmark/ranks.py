"""Agreement of ranks on a benchmark's commands, and the cost of their all-reduces."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from app.timing import synchronize

CALLS = 50
"""All-reduces of one timing."""


class RankGroup:
    """Group of all ranks on the host (gloo), whose messages do not wait for the device."""

    def __init__(self) -> None:
        self._group = distributed.new_group(backend="gloo")

    def decide(self, function: Callable[[], Any]) -> Any:
        """Return, on every rank, the result of a function that the first rank calls; every rank must call this."""
        decision = [function() if distributed.get_rank() == 0 else None]
        distributed.broadcast_object_list(decision, src=0, group=self._group)
        return decision[0]

    def total(self, value: float) -> float:
        """Return the sum of a number over the ranks."""
        summed = torch.tensor(value, dtype=torch.float64)
        distributed.all_reduce(summed, group=self._group)
        return float(summed)


def all_reduce_seconds(number: int, device: torch.device) -> float:
    """Time the all-reduce of `number` float32 values, alone, in seconds per call; every rank must call this."""
    values = torch.zeros(number, device=device)
    for _ in range(5):
        distributed.all_reduce(values)
    synchronize(device)
    began = time.perf_counter()
    for _ in range(CALLS):
        distributed.all_reduce(values)
    synchronize(device)
    return (time.perf_counter() - began) / CALLS
