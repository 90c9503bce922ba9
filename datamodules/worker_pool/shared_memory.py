"""Lay out arrays in memory that processes share."""

import math
import mmap
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray


Layout = dict[str, tuple[tuple[int, ...], Any]]
"""Shape and dtype of every array that is shared."""


class Shared(NamedTuple):
    """What the parent and its workers share: arrays over one block of memory, for N environments and W workers.

    obs, final_obs: `[N, *obs]`.   action: `[N, *action]`, as the environment takes it.   action_mask: `[N, n]` bool.
    outcome: `[N, 8]` bytes, in one piece so that one copy moves them: reward as float32, terminated, truncated, valid
        (False where the step failed and the observation begins a new episode).
    masked: `[N]`, whether the last reset brought a mask.   seed: `[N]` for the next reset, -1 for none.
    current: `[W]`, the environment each worker is busy with, -1 for none.   call: `[W]`, with which of `CALLS`.
    served: `[W]`, orders each worker has begun, 0 until its environments are made: with `current` and `call` it tells
        one call of an environment from the next.   failures: `[W]`, environments each has made anew.
    owed: `[W]`, whether the order that each has begun last is still to be served.
    limit: `[1]`, steps after which an episode is truncated; 0 for none.
    orders: `[SLOTS]`, the n-th order at n modulo `SLOTS`.   closing: `[1]`, not 0 when workers shall end.
    """

    obs: Array
    final_obs: Array
    action: Array
    action_mask: Array
    outcome: Array
    masked: Array
    seed: Array
    current: Array
    call: Array
    served: Array
    owed: Array
    failures: Array
    limit: Array
    orders: Array
    closing: Array


def needed(layout: Layout) -> int:
    """Bytes that hold the arrays of `layout` wherever in a page they begin."""
    return _offsets(layout)[-1] + mmap.PAGESIZE


def whole_pages(memory: Any) -> Array:
    """The bytes of a block of shared memory that fill pages: pinning one block never touches a page of another."""
    block = np.frombuffer(memory, dtype=np.uint8)
    start = -block.ctypes.data % mmap.PAGESIZE
    return block[start : block.size - (block.size - start) % mmap.PAGESIZE]


def shared_arrays(memory: Any, layout: Layout) -> Shared:
    """The arrays of `layout` in a block of shared memory of `needed(layout)` bytes."""
    block, places = whole_pages(memory), zip(layout.items(), _offsets(layout), strict=False)
    return Shared(**{name: np.ndarray(shape, dtype, block, start) for (name, (shape, dtype)), start in places})


def _offsets(layout: Layout) -> list[int]:
    """Where each array begins, at a multiple of 64 bytes, and last the end of all, at that of a page."""
    ends = [0]
    for shape, dtype in layout.values():
        ends.append(_rounded(ends[-1] + math.prod(shape) * np.dtype(dtype).itemsize, 64))
    return [*ends[:-1], _rounded(ends[-1], mmap.PAGESIZE)]


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
