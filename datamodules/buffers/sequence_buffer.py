"""Storage of trajectories as they were lived, and pieces of them with masks instead of padding."""

from typing import Any

import torch
from torch import Tensor

from datamodules.core.errors import UsageError
from datamodules.core.sequence_types import Sequences
from datamodules.core.types import Rollout


class SequenceRing:
    """The last `capacity` steps of B rows, oldest overwritten first; allocated when the first steps come.

    Places are counted by age: 0 is the oldest, `capacity` holds the newest observation, after which nothing was done
    yet. Every observation is stored once.

    Args:
        capacity: steps of every row.
        length: L, steps of the pieces that will be drawn.

    Raises: UsageError if a piece does not fit.
    """

    def __init__(self, capacity: int, length: int):
        if length > capacity:
            raise UsageError(f"data.chunk is {length}, more than data.capacity {capacity}: raise data.capacity.")
        self.capacity, self.length = capacity, length
        self.newest, self.size = capacity, 0
        self.columns: dict[str, Tensor] = {}

    def store(self, rollout: Rollout) -> Sequences:
        """Append the steps of a rollout; they come back as sequences `[T, B]`."""
        joined = rollout.valid & ~(rollout.terminated | rollout.truncated)
        fresh = Sequences(rollout.obs, rollout.action, joined)
        steps = len(joined)
        if steps > self.capacity:
            raise UsageError(f"data.horizon is {steps}, more than data.capacity {self.capacity}: raise data.capacity.")
        if not self.columns:
            for name, value in fresh._asdict().items():
                self.columns[name] = value.new_zeros(self.capacity + 1, *value.shape[1:])
        for name, value in fresh._asdict().items():
            stored = self.columns[name]
            if stored.shape[1:] != value.shape[1:] or stored.dtype != value.dtype:
                raise UsageError(
                    f"The stored steps hold {name} of shape {list(stored.shape[1:])}, and what was collected is of"
                    f" shape {list(value.shape[1:])}: keep data.num_envs and the environment."
                )
        places = (self.newest + torch.arange(steps + 1, device=joined.device)) % (self.capacity + 1)
        self.columns["action"][places[:-1]] = fresh.action
        self.columns["joined"][places[:-1]] = joined
        self.columns["obs"][places] = fresh.obs
        self.newest = (self.newest + steps) % (self.capacity + 1)
        self.columns["joined"][self.newest] = False
        self.size = min(self.size + steps, self.capacity)
        return fresh

    def cut(self) -> None:
        """Say that what comes next does not follow from the newest observation."""
        if self.columns:
            self.columns["joined"][self.newest - 1] = False

    def history(self) -> Sequences:
        """All that is stored, the oldest first, `[capacity, B]`; places never written are not joined."""
        order = self.order(torch.arange(self.capacity + 1, device=self.columns["obs"].device))
        obs, action, joined = (self.columns[name][order] for name in ("obs", "action", "joined"))
        return Sequences(obs, action[:-1], joined[:-1])

    def sample(self, uniforms: Tensor, recent: int) -> Sequences:
        """Pieces of L steps: obs `[U, L+1, N, *obs]`, action and joined `[U, L, N]`.

        Args:
            uniforms: `[U, N, 2]` in [0, 1): where each piece begins, and of which row.
            recent: the first so many of each N are the newest steps instead.
        """
        last = self.capacity - self.length
        first = min(self.capacity - self.size, last)
        start = first + (uniforms[..., 0] * (last - first + 1)).long().clamp(max=last - first)
        start[:, :recent] = last
        rows = (
            (uniforms[..., 1] * self.columns["joined"].shape[1]).long().clamp(max=self.columns["joined"].shape[1] - 1)
        )
        steps = torch.arange(self.length + 1, device=start.device)
        place, row = self.order(start.unsqueeze(1) + steps[:, None]), rows.unsqueeze(1)
        obs, action, joined = (self.columns[name][place, row] for name in ("obs", "action", "joined"))
        return Sequences(obs, action[:, :-1], joined[:, :-1])

    def order(self, age: Tensor) -> Tensor:
        """Where a place by age lies in storage."""
        return (self.newest + 1 + age) % (self.capacity + 1)

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain types, in order of age, on the CPU."""
        columns = {name: value.cpu().clone() for name, value in self.columns.items()}
        return {"newest": self.newest, "size": self.size, **columns}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Continue from `state_dict`.

        Raises: UsageError if it was saved with another capacity.
        """
        columns = {name: value.to(device, copy=True) for name, value in state.items() if isinstance(value, Tensor)}
        saved = {len(value) - 1 for value in columns.values()}
        if saved and saved != {self.capacity}:
            raise UsageError(f"The stored steps have capacity {max(saved)}, not {self.capacity}: keep data.capacity.")
        self.columns, self.newest, self.size = columns, state["newest"], state["size"]
