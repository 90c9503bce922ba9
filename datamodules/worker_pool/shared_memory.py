"""Layout of arrays in shared memory."""

import math
import mmap
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray

Layout = dict[str, tuple[tuple[int, ...], Any]]
"""Shape and dtype of every shared array."""


class Shared(NamedTuple):
    """Arrays in shared memory between the parent and its workers, for N environments and W workers.

    obs, final_obs: `[N, *obs]`, or parts by name (`obs/PART` in the layout).   action: `[N, *action]`, as the
        environment takes it.   action_mask: `[N, n]` bool.
    outcome: `[N, 8]` bytes, contiguous for a single copy: reward as float32, terminated, truncated, valid (False if the
        step failed and the observation begins a new episode).
    masked: `[N]`, whether the last reset returned a mask.   seed: `[N]` for the next reset, -1 for none.
    current: `[W]`, environment that each worker is calling, -1 for none.   call: `[W]`, index into `CALLS`.
    served: `[W]`, commands each worker has begun, 0 until its environments are created: with `current` and `call` it
        distinguishes consecutive calls of an environment.   failures: `[W]`, environments that each has restarted.
    owed: `[W]`, whether the command that each has begun last is still to be completed.
    limit: `[1]`, steps after which an episode is truncated; 0 for none.
    orders: `[QUEUE_SIZE]`, the n-th command at n modulo `QUEUE_SIZE`.   closing: `[1]`, nonzero to end the workers.
    """

    obs: Any
    final_obs: Any
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


def required_bytes(layout: Layout) -> int:
    """Return the bytes needed for the arrays of `layout` at any offset in a page."""
    return _offsets(layout)[-1] + mmap.PAGESIZE


def page_aligned(memory: Any) -> Array:
    """Return the page-aligned bytes of a block of shared memory, so that pinning it affects no other block."""
    block = np.frombuffer(memory, dtype=np.uint8)
    start = -block.ctypes.data % mmap.PAGESIZE
    return block[start : block.size - (block.size - start) % mmap.PAGESIZE]


def shared_arrays(memory: Any, layout: Layout) -> Shared:
    """Return the arrays of `layout` in a block of shared memory of `required_bytes(layout)` bytes."""
    block, places = page_aligned(memory), zip(layout.items(), _offsets(layout), strict=False)
    arrays: dict[str, Any] = {}
    for (name, (shape, dtype)), start in places:
        array, (name, *part) = np.ndarray(shape, dtype, block, start), name.split("/", 1)
        if part:
            arrays.setdefault(name, {})[part[0]] = array
        else:
            arrays[name] = array
    return Shared(**arrays)


def _offsets(layout: Layout) -> list[int]:
    """Return the offset of each array, a multiple of 64 bytes, and the total size, a multiple of the page size."""
    ends = [0]
    for shape, dtype in layout.values():
        ends.append(_rounded(ends[-1] + math.prod(shape) * np.dtype(dtype).itemsize, 64))
    return [*ends[:-1], _rounded(ends[-1], mmap.PAGESIZE)]


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
