"""Agreement of ranks on a benchmark's commands, and the cost of their all-reduces."""

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import distributed

from app.timing import synchronize
from modules.optim.distributed import host_group

CALLS = 50
"""All-reduces of one timing."""


def decide(function: Callable[[], Any]) -> Any:
    """Return, on every rank, the result of a function that the first rank calls; every rank must call this."""
    decision = [function() if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(decision, src=0, group=host_group())
    return decision[0]


def total(value: float) -> float:
    """Return the sum of a number over the ranks; every rank must call this."""
    summed = torch.tensor(value, dtype=torch.float64)
    distributed.all_reduce(summed, group=host_group())
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
