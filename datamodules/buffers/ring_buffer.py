"""RingBuffer: preallocated storage of the most recent vector steps, and its index arithmetic."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from datamodules.buffers.storage import memmap_zeros
from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import join_parts, name_parts
from datamodules.core.types import Obs, Rollout

TERMINATED, TRUNCATED, VALID, RESET = 1, 2, 4, 8
"""Flags of a stored step: terminated, truncated, valid, first of an episode."""

ENDED = TERMINATED | TRUNCATED


class RingBuffer:
    """Ring buffer of the most recent `capacity` vector steps of B rows, allocated once.

    Each observation is stored once: the next observation of a step is in the next ring row, and the last ring row holds
    the current observation, without a step. True last observations of truncated steps are stored separately, behind the
    frames of the rows; when their slots run out the oldest are overwritten, and their steps are no longer sampled.
    Observations of uint8 stay uint8, and every part of an observation has its own storage. All positions are tensors,
    so that writing and reading can be captured in a CUDA graph. `write` does not advance the position and can be
    repeated; `commit_` advances it.

    Args:
        rollout, masks: example data, for shapes and dtypes; see `write`.
        capacity: C, ring rows, at least the rollout's steps plus one.
        num_final_slots: F, slots for true last observations.
        frame_stack: number of stacked frames along the first dimension of observations, newest last; only the newest
            frame of a row is stored. Parts of observations that are no such stack are stored unchanged (`part_stack`).
        device: device of the storage.
        pinned: use pinned host memory, for fast copies to a GPU.
        folder: use memory-mapped files in this folder instead of memory (see `memmap_zeros`); CPU only.

    Attributes:
        counts: total vector steps and true last observations written, int64 `[2]`.
        columns: data of each step, `[C, B, ...]` by name; masks belong to its observation.
        frames: `[C * B + (F + 1) * frame_stack, *frame]` of every part of an observation, `frames` or `frames/PART`.
    """

    def __init__(
        self,
        rollout: Rollout,
        masks: dict[str, Tensor],
        capacity: int,
        *,
        num_final_slots: int,
        frame_stack: int = 1,
        device: torch.device,
        pinned: bool = False,
        folder: Path | None = None,
    ):
        steps, self.num_rows = rollout.reward.shape
        if capacity < steps + 1:
            raise ConfigurationError(
                f"A ring buffer of {capacity} rows cannot hold a rollout of {steps} steps and its last observation."
            )
        self.capacity, self.num_final_slots, self.frame_stack, self.device = (
            capacity,
            num_final_slots,
            frame_stack,
            device,
        )
        zeros = partial(_zeros, device=device, pinned=pinned, folder=folder)
        self.counts = torch.zeros(2, dtype=torch.int64, device=device)
        self.columns = {
            name: zeros((capacity, self.num_rows, *value.shape[2:]), value.dtype)
            for name, value in rollout_columns(rollout, masks).items()
        }
        self.columns["final"] = zeros((capacity, self.num_rows), torch.int64).fill_(-1)
        self._entries = {name: column.flatten(0, 1) for name, column in self.columns.items()}
        self.frames, self._stacks = {}, part_stacks(rollout.obs, frame_stack)
        for name, value in name_parts("frames", rollout.obs).items():
            stack = self._stacks[name]
            frames = capacity * self.num_rows + (num_final_slots + 1) * stack
            self.frames[name] = zeros((frames, *value.shape[2 + (stack > 1) :]), value.dtype)
        self.masks = {"extras/" + name for name in masks}
        self._next_counts = self.counts.clone()
        self._offsets = torch.arange(steps + 1, device=device)
        self._steps_in_stack = torch.arange(frame_stack, device=device)

    def write(self, rollout: Rollout, masks: dict[str, Tensor]) -> None:
        """Write a rollout behind the committed steps; `masks` are those of its last `obs`.

        Repeating the call writes the same data to the same place.
        """
        steps, offsets = len(rollout.reward), self._offsets
        if len(offsets) != steps + 1:
            offsets = torch.arange(steps + 1, device=self.device)
        rows = (self.counts[0] + offsets) % self.capacity
        stored = rollout_columns(rollout, masks)
        for name, value in stored.items():
            self.columns[name].index_copy_(0, rows[: len(value)], value.to(self.device))
        for name, value in name_parts("frames", rollout.obs).items():
            newest = value if self._stacks[name] == 1 else value[:, :, -1]
            self._row_frames(name).index_copy_(0, rows, newest.to(self.device))
        used = self._write_finals(rollout, rows[:-1])
        torch.add(self.counts, torch.stack([used * 0 + steps, used]), out=self._next_counts)

    def commit_(self) -> None:
        """Advance the position behind the rollout written last."""
        self.counts.copy_(self._next_counts)

    def break_episode_(self) -> None:
        """Mark the next step as not contiguous with the last one, so that windows end before it."""
        flags = self.columns["flags"][(self.counts[0] - 1) % self.capacity]
        flags &= torch.where((flags & ENDED) == 0, 255 - VALID, 255).to(torch.uint8)

    @property
    def size(self) -> Tensor:
        """Return the number of complete ring rows, 0-d int64."""
        return self.counts[0].clamp(max=self.capacity - 1)

    def gather(self, name: str, entry: Tensor) -> Tensor:
        """Gather a column at indices (ring row x B + row) of any shape."""
        column = self._entries[name]
        return column.index_select(0, entry.flatten()).view(*entry.shape, *column.shape[1:])

    def offset_index(self, entry: Tensor, steps: Tensor) -> Tensor:
        """Return the indices of the same rows `steps` later."""
        return (entry + steps * self.num_rows) % (self.capacity * self.num_rows)

    def obs(self, entry: Tensor, final: Tensor | None = None, *, follows: bool = False) -> Obs:
        """Return the observations at indices `[M]`, or the true last observation `final` `[M]` if it is not negative.

        Args:
            follows: whether each index follows a step of the same episode, so that it does not begin one.
        """
        places = {stack: self._places(entry, final, follows, stack) for stack in {*self._stacks.values()}}
        return join_parts("frames", {name: self._gather_frames(name, places) for name in self.frames})

    def final_obs_lost(self, final: Tensor) -> Tensor:
        """Return whether true last observations `[M]`, given by number, were overwritten."""
        return final < (self.counts[1] - self.num_final_slots).clamp(min=0)

    def state_dict(self) -> dict[str, Tensor]:
        """Return all stored data by name, without copying."""
        return {"counts": self.counts, **self.frames, **self.columns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from `state_dict`.

        Raises: ConfigurationError if shapes or names differ from those of this buffer; nothing is changed then.
        """
        own = self.state_dict()
        for name in {**own, **state}:
            there, here = state.get(name), own.get(name)
            if here is not None and not unlike(there, here):
                continue
            raise ConfigurationError(
                f"The saved replay buffer has another shape ({name} is {_form(there)} in the file and {_form(here)}"
                " in this run): keep data.capacity, num_envs, frame_stack and the environment's episode length, or"
                " resume from `best`, which has no replay buffer."
            )
        for name, value in own.items():
            value.copy_(state[name])

    def _row_frames(self, name: str) -> Tensor:
        frames = self.frames[name][: self.capacity * self.num_rows]
        return frames.view(self.capacity, self.num_rows, *frames.shape[1:])

    def _places(self, entry: Tensor, final: Tensor | None, follows: bool, stack: int) -> Tensor:
        """Return the positions `[M, stack]` of the frames of observations (see `obs`)."""
        place = entry.unsqueeze(1) if stack == 1 else self._frame_stack_index(entry, follows)
        if final is None:
            return place
        number = (final % self.num_final_slots).unsqueeze(1)
        slot = self.capacity * self.num_rows + number * stack + self._steps_in_stack[:stack]
        return torch.where((final >= 0).unsqueeze(1), slot, place)

    def _gather_frames(self, name: str, places: dict[int, Tensor]) -> Tensor:
        """Gather the observations of one part."""
        stack, frames = self._stacks[name], self.frames[name]
        found = frames.index_select(0, places[stack].flatten())
        return found if stack == 1 else found.view(*places[stack].shape, *frames.shape[1:])

    def _write_finals(self, rollout: Rollout, rows: Tensor) -> Tensor:
        """Number and store the true last observations; return how many there are, 0-d."""
        index = rollout.final_step.to(self.device)
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
        kept = used & (rank >= total - self.num_final_slots)
        slot = torch.where(kept, number % self.num_final_slots, self.num_final_slots).flatten()
        for name, value in name_parts("frames", rollout.final_obs).items():
            stack, obs = self._stacks[name], value.flatten(0, 1).to(self.device)
            stacks = self.frames[name][self.capacity * self.num_rows :].unflatten(0, (self.num_final_slots + 1, stack))
            stacks.index_copy_(0, slot, obs.unsqueeze(1) if stack == 1 else obs)
        return total

    def _frame_stack_index(self, entry: Tensor, follows: bool) -> Tensor:
        """Return the frame positions of stacks, `[M, frame_stack]`, without frames before the episode."""
        back = self._steps_in_stack.flip(0)
        first = (self.gather("flags", self.offset_index(entry.unsqueeze(1), -back)) & RESET) > 0
        if follows:
            first = first & (back > 0)
        furthest = torch.where(first, back, self.frame_stack - 1).amin(1, keepdim=True)
        return self.offset_index(entry.unsqueeze(1), -torch.minimum(back, furthest))


def rollout_columns(rollout: Rollout, masks: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the stored columns of a rollout except observations: `[T, B, ...]` of steps, `[T+1, B, ...]` of masks."""
    extras = dict(rollout.extras)
    for name, mask in masks.items():
        extras[name] = torch.cat([extras[name], mask.unsqueeze(0)])
    flags = rollout.terminated.to(torch.uint8)
    for bit, holds in ((TRUNCATED, rollout.truncated), (VALID, rollout.valid), (RESET, rollout.episode_start)):
        flags.add_(holds.view(torch.uint8), alpha=bit)
    stored = {"action": rollout.action, "reward": rollout.reward, "flags": flags}
    return stored | {"extras/" + name: value for name, value in extras.items()}


def required_bytes(rollout: Rollout, masks: dict[str, Tensor], rows: int, *, finals: int, frame_stack: int) -> int:
    """Return the bytes that a `RingBuffer` with these arguments needs."""
    width = rollout.reward.shape[1]
    columns_bytes = (
        sum(value[0].nbytes for value in rollout_columns(rollout, masks).values()) + 8 * width
    )  # 8 bytes for the index of its last observation
    parts, stacks = name_parts("frames", rollout.obs), part_stacks(rollout.obs, frame_stack)
    stack_bytes = sum(value[0, 0].nbytes for value in parts.values())
    frame_bytes = sum(width * value[0, 0].nbytes // stacks[name] for name, value in parts.items())
    return rows * (columns_bytes + frame_bytes) + (finals + 1) * stack_bytes


def num_final_slots(rows: int, width: int, min_truncation_step: int | None) -> int:
    """Return the number of slots for true last observations of `rows` vector steps; estimated if the last is None."""
    return (-(-rows // (min_truncation_step or 8)) + 1) * width


def part_stack(shape: Sequence[int], frame_stack: int) -> int:
    """Return the number of stacked frames in a part of an observation: of an image whose first dimension it is."""
    return frame_stack if len(shape) > 2 and shape[0] == frame_stack else 1


def part_stacks(obs: Obs, frame_stack: int) -> dict[str, int]:
    """Return the stacked frames of every part of observations `[T, B, ...]`, by the names of `RingBuffer.frames`."""
    parts = name_parts("frames", obs)
    if "frames" in parts:
        return {"frames": frame_stack}
    return {name: part_stack(value.shape[2:], frame_stack) for name, value in parts.items()}


def is_frame_stack(rollout: Rollout, frame_stack: int) -> bool:
    """Return whether the ring can rebuild the stacks from single frames; copies a value to the host.

    Within an episode a stack shifts by one frame per step, and an episode begins with its first frame repeated.
    """
    parts, stacks = name_parts("frames", rollout.obs), part_stacks(rollout.obs, frame_stack)
    return all(_is_stack(value, rollout) for name, value in parts.items() if stacks[name] > 1)


def _is_stack(obs: Tensor, rollout: Rollout) -> bool:
    before, after = obs[:-1], obs[1:]
    goes_on, begins = ~(rollout.terminated | rollout.truncated) & rollout.valid, rollout.episode_start & rollout.valid
    first = before[begins]
    if not goes_on.all():
        before, after = before[goes_on].unsqueeze(0), after[goes_on].unsqueeze(0)
    repeated = torch.equal(first[:, :-1], first[:, -1:].expand_as(first[:, :-1]))
    return repeated and torch.equal(after[:, :, :-1], before[:, :, 1:])


def unlike(value: Any, other: Tensor) -> bool:
    """Return True if the value is not a tensor of the same shape and dtype as another."""
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
        raise ConfigurationError(
            f"A replay buffer in files is on the CPU, not on {device}: use device cpu, or no folder."
        )
    return memmap_zeros(shape, dtype, folder)
