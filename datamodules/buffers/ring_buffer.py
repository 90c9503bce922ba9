"""Ring: preallocated storage of the newest vector steps, and its index arithmetic."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from datamodules.buffers.storage import zeros_on_disk
from datamodules.core.errors import UsageError
from datamodules.core.types import Rollout

TERMINATED, TRUNCATED, VALID, RESET = 1, 2, 4, 8
"""Bits of a stored step: how its episode ended with it, whether it counts, whether it is an episode's first."""

ENDED = TERMINATED | TRUNCATED


class Ring:
    """The newest `rows` vector steps of B columns, in storage that is allocated once.

    An observation is stored once: what a step leads to lies one row further, and the last row holds the observation to
    act on next, which has no step yet. True last observations of truncated steps lie apart, behind the frames of the
    rows; when their slots run out the oldest are overwritten, and the steps they belong to never leave the ring again.
    Bytes stay bytes. All positions are tensors, so that writing and reading can live in a CUDA graph, and writing
    changes no position: it can be repeated, until `advance_` says that it counts.

    Args:
        rollout, masks: what to store, for shapes and dtypes; see `write`.
        rows: C, at least the rollout's steps and one more.
        finals: F, slots for true last observations.
        frame_stack: observations are stacks of that many frames along their first dimension, newest last, and a row
            stores the newest only.
        device: where everything is stored.
        pinned: in memory from which a GPU can copy at full speed.
        folder: in files there, that go with the ring, instead of memory (see `zeros_on_disk`); for a CPU only.

    Attributes:
        counts: vector steps and true last observations ever written, int64 `[2]`.
        columns: what belongs to a step, `[C, B, ...]` by name; masks belong to its observation.
        frames: `[C * B + (F + 1) * frame_stack, *frame]`.
    """

    def __init__(
        self,
        rollout: Rollout,
        masks: dict[str, Tensor],
        rows: int,
        *,
        finals: int,
        frame_stack: int = 1,
        device: torch.device,
        pinned: bool = False,
        folder: Path | None = None,
    ):
        steps, self.width = rollout.reward.shape
        if rows < steps + 1:
            raise UsageError(f"A ring of {rows} rows cannot hold the {steps} steps of a rollout and what follows them.")
        self.rows, self.finals, self.frame_stack, self.device = rows, finals, frame_stack, device
        zeros = partial(_zeros, device=device, pinned=pinned, folder=folder)
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)
        self.columns = {
            name: zeros((rows, self.width, *value.shape[2:]), value.dtype)
            for name, value in columns(rollout, masks).items()
        }
        self.columns["final"] = zeros((rows, self.width), torch.int64).fill_(-1)
        self._entries = {name: column.flatten(0, 1) for name, column in self.columns.items()}
        frame = rollout.obs.shape[2:] if frame_stack == 1 else rollout.obs.shape[3:]
        frames = rows * self.width + (finals + 1) * frame_stack
        self.frames = zeros((frames, *frame), rollout.obs.dtype)
        self.masks = {"extras/" + name for name in masks}
        self._next_counts = self.counts.clone()
        self._offsets = torch.arange(steps + 1, device=device)
        self._stack = torch.arange(frame_stack, device=device)

    def write(self, rollout: Rollout, masks: dict[str, Tensor]) -> None:
        """Store a rollout behind what counts already, of as many steps as the first; `masks` belong to its last `obs`.

        Repeating it stores the same again in the same place.
        """
        rows = (self.counts[0] + self._offsets) % self.rows
        stored = columns(rollout, masks)
        for name, value in stored.items():
            self.columns[name].index_copy_(0, rows[: len(value)], value.to(self.device))
        obs = rollout.obs if self.frame_stack == 1 else rollout.obs[:, :, -1]
        self._row_frames.index_copy_(0, rows, obs.to(self.device))
        used = self._write_finals(rollout, rows[:-1])
        torch.add(self.counts, torch.stack([used * 0 + len(self._offsets) - 1, used]), out=self._next_counts)

    def advance_(self) -> None:
        """What was written last counts from now on."""
        self.counts.copy_(self._next_counts)

    def cut_(self) -> None:
        """The next step does not continue the last one: a window that reaches it ends before it."""
        flags = self.columns["flags"][(self.counts[0] - 1) % self.rows]
        flags &= torch.where((flags & ENDED) == 0, 255 - VALID, 255).to(torch.uint8)

    @property
    def size(self) -> Tensor:
        """Complete rows, 0-d int64."""
        return self.counts[0].clamp(max=self.rows - 1)

    def read(self, name: str, entry: Tensor) -> Tensor:
        """A column at entries (row x B + column) of any shape."""
        column = self._entries[name]
        return column.index_select(0, entry.flatten()).view(*entry.shape, *column.shape[1:])

    def later(self, entry: Tensor, steps: Tensor) -> Tensor:
        """Entries of the same columns so many steps further on."""
        return (entry + steps * self.width) % (self.rows * self.width)

    def obs(self, entry: Tensor, final: Tensor | None = None, *, follows: bool = False) -> Tensor:
        """Observations of entries `[M]`, or, where `final` `[M]` is not negative, that true last observation.

        Args:
            follows: whether each follows a step of the same episode, so that it begins none.
        """
        frame = entry.unsqueeze(1) if self.frame_stack == 1 else self._frames_back(entry, follows)
        if final is not None:
            slot = self.rows * self.width + (final % self.finals).unsqueeze(1) * self.frame_stack + self._stack
            frame = torch.where((final >= 0).unsqueeze(1), slot, frame)
        found = self.frames.index_select(0, frame.flatten())
        return found if self.frame_stack == 1 else found.view(*frame.shape, *self.frames.shape[1:])

    def lost(self, final: Tensor) -> Tensor:
        """Whether true last observations `[M]`, by their numbers, were overwritten."""
        return final < (self.counts[1] - self.finals).clamp(min=0)

    def state_dict(self) -> dict[str, Tensor]:
        """Everything stored, by name; the tensors are the ring's own."""
        return {"counts": self.counts, "frames": self.frames, **self.columns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`.

        Raises: UsageError if it is of another shape, or not what a ring stores; nothing has changed then.
        """
        own = self.state_dict()
        for name in {**own, **state}:
            there, here = state.get(name), own.get(name)
            if here is not None and not unlike(there, here):
                continue
            raise UsageError(
                f"The saved replay is of another shape than this one ({name} is {_form(there)} there and {_form(here)}"
                " here): keep data.capacity, num_envs, frame_stack and the environment's length of episodes, or resume"
                " from `best`, which comes without a replay."
            )
        for name, value in own.items():
            value.copy_(state[name])

    @property
    def _row_frames(self) -> Tensor:
        frames = self.frames[: self.rows * self.width]
        return frames.view(self.rows, self.width, *self.frames.shape[1:])

    def _write_finals(self, rollout: Rollout, rows: Tensor) -> Tensor:
        """Number the true last observations on, and store them; how many there were, 0-d."""
        index = rollout.final_index.to(self.device)
        used = index >= 0
        numbers, total = self.columns["final"], used.sum()
        if self.device.type == "cpu" and not total:
            numbers.index_fill_(0, rows, -1)
            return total
        rank = used.flatten().cumsum(0).view_as(index) - 1
        number = torch.where(used, self.counts[1] + rank, -1)
        padded = torch.full_like(index[:1], -1).repeat(len(rows) + 1, 1)
        padded.scatter_(0, torch.where(used, index, len(rows)), number)
        numbers.index_copy_(0, rows, padded[:-1])
        kept = used & (rank >= total - self.finals)
        slot = torch.where(kept, number % self.finals, self.finals).flatten()
        stacks = self.frames[self.rows * self.width :].unflatten(0, (self.finals + 1, self.frame_stack))
        obs = rollout.final_obs.flatten(0, 1).to(self.device)
        stacks.index_copy_(0, slot, obs.unsqueeze(1) if self.frame_stack == 1 else obs)
        return total

    def _frames_back(self, entry: Tensor, follows: bool) -> Tensor:
        """Where the frames of stacks lie, `[M, frame_stack]`: none before its episode."""
        back = self._stack.flip(0)
        first = (self.read("flags", self.later(entry.unsqueeze(1), -back)) & RESET) > 0
        if follows:
            first = first & (back > 0)
        furthest = torch.where(first, back, self.frame_stack - 1).amin(1, keepdim=True)
        return self.later(entry.unsqueeze(1), -torch.minimum(back, furthest))


def columns(rollout: Rollout, masks: dict[str, Tensor]) -> dict[str, Tensor]:
    """What a ring stores of a rollout besides observations: `[T, B, ...]` of steps, `[T+1, B, ...]` of masks."""
    extras = dict(rollout.extras)
    for name, mask in masks.items():
        extras[name] = torch.cat([extras[name], mask.unsqueeze(0)])
    flags = rollout.terminated.to(torch.uint8)
    for bit, holds in ((TRUNCATED, rollout.truncated), (VALID, rollout.valid), (RESET, rollout.reset)):
        flags.add_(holds.view(torch.uint8), alpha=bit)
    stored = {"action": rollout.action, "reward": rollout.reward, "flags": flags}
    return stored | {"extras/" + name: value for name, value in extras.items()}


def ring_bytes(rollout: Rollout, masks: dict[str, Tensor], rows: int, *, finals: int, frame_stack: int) -> int:
    """Bytes that a `Ring` of these arguments takes."""
    width = rollout.reward.shape[1]
    columns_bytes = sum(value[0].nbytes for value in columns(rollout, masks).values()) + 8 * width  # 8 number its end
    stack_bytes = rollout.obs[0, 0].nbytes
    return rows * (columns_bytes + width * stack_bytes // frame_stack) + (finals + 1) * stack_bytes


def final_slots(rows: int, width: int, shortest_truncation: int | None) -> int:
    """Slots for all true last observations of `rows` vector steps; a guess where truncations can come at any step."""
    return (-(-rows // (shortest_truncation or 8)) + 1) * width


def are_stacks(rollout: Rollout) -> bool:
    """Whether the ring would rebuild these stacks from single frames; reads a value back.

    Within an episode a stack moves by one frame a step, and an episode begins with its first frame repeated.
    """
    before, after = rollout.obs[:-1], rollout.obs[1:]
    goes_on, begins = ~(rollout.terminated | rollout.truncated) & rollout.valid, rollout.reset & rollout.valid
    first = before[begins]
    if not goes_on.all():
        before, after = before[goes_on].unsqueeze(0), after[goes_on].unsqueeze(0)
    repeated = torch.equal(first[:, :-1], first[:, -1:].expand_as(first[:, :-1]))
    return repeated and torch.equal(after[:, :, :-1], before[:, :, 1:])


def unlike(value: Any, other: Tensor) -> bool:
    """Whether a value is no tensor of another one's shape and type."""
    return not isinstance(value, Tensor) or value.shape != other.shape or value.dtype != other.dtype


def _form(value: Any) -> str:
    if not isinstance(value, Tensor):
        return "missing"
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def _zeros(
    shape: tuple[int, ...], dtype: torch.dtype, *, device: torch.device, pinned: bool, folder: Path | None
) -> Tensor:
    if folder is None:
        return torch.zeros(shape, dtype=dtype, device=device, pin_memory=pinned)
    if device.type != "cpu":
        raise UsageError(f"A replay in files lies on the CPU, not on {device}: give it that device, or no folder.")
    return zeros_on_disk(shape, dtype, folder)
