"""SequenceBuffer: store trajectories, and sample pieces of them with masks instead of padding."""

from typing import Any

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.sequence_types import SequenceBatch
from datamodules.core.types import Rollout, require_tensor


class SequenceBuffer:
    """Ring buffer of the last `capacity` steps of B rows; allocated when the first steps are appended.

    Places are numbered by age: 0 is the oldest, `capacity` the newest observation, which has no action yet. Each
    observation is stored once.

    Args:
        capacity: steps per row.
        length: L, steps of a sampled piece.

    Raises: ConfigurationError if a piece is longer than the capacity.
    """

    def __init__(self, capacity: int, length: int):
        if length > capacity:
            raise ConfigurationError(
                f"data.sequence_length is {length}, more than data.capacity {capacity}: raise data.capacity."
            )
        self.capacity, self.length = capacity, length
        self.newest_index, self.size = capacity, 0
        self.columns: dict[str, Tensor] = {}

    def append(self, rollout: Rollout) -> SequenceBatch:
        """Append the steps of a rollout and return them as sequences `[T, B]`."""
        contiguous = rollout.valid & ~(rollout.terminated | rollout.truncated)
        fresh = SequenceBatch(require_tensor(rollout.obs), rollout.action, contiguous)
        steps = len(contiguous)
        if steps > self.capacity:
            raise ConfigurationError(
                f"data.train_freq is {steps}, more than data.capacity {self.capacity}: raise data.capacity."
            )
        if not self.columns:
            for name, value in fresh._asdict().items():
                self.columns[name] = value.new_zeros(self.capacity + 1, *value.shape[1:])
        for name, value in fresh._asdict().items():
            stored = self.columns[name]
            if stored.shape[1:] != value.shape[1:] or stored.dtype != value.dtype:
                raise ConfigurationError(
                    f"The stored steps have {name} of shape {list(stored.shape[1:])}, and the collected ones have"
                    f" shape {list(value.shape[1:])}: keep data.num_envs and the environment."
                )
        places = (self.newest_index + torch.arange(steps + 1, device=contiguous.device)) % (self.capacity + 1)
        self.columns["action"][places[:-1]] = fresh.action
        self.columns["contiguous"][places[:-1]] = contiguous
        self.columns["obs"][places] = fresh.obs
        self.newest_index = (self.newest_index + steps) % (self.capacity + 1)
        self.columns["contiguous"][self.newest_index] = False
        self.size = min(self.size + steps, self.capacity)
        return fresh

    def break_episode(self) -> None:
        """Mark the next observation as not contiguous with the newest one."""
        if self.columns:
            self.columns["contiguous"][self.newest_index - 1] = False

    def history(self) -> SequenceBatch:
        """Return all stored steps, oldest first, `[capacity, B]`; empty places are not contiguous."""
        order = self.physical_index(torch.arange(self.capacity + 1, device=self.columns["obs"].device))
        obs, action, contiguous = (self.columns[name][order] for name in ("obs", "action", "contiguous"))
        return SequenceBatch(obs, action[:-1], contiguous[:-1])

    def sample(self, uniforms: Tensor, recent: int) -> SequenceBatch:
        """Sample pieces of L steps: obs `[U, L+1, N, *obs]`, action and contiguous `[U, L, N]`.

        Args:
            uniforms: `[U, N, 2]` in [0, 1): start and row of each piece.
            recent: number of pieces among each N that are the most recent steps instead.
        """
        last = self.capacity - self.length
        first = min(self.capacity - self.size, last)
        start = first + (uniforms[..., 0] * (last - first + 1)).long().clamp(max=last - first)
        start[:, :recent] = last
        rows = (
            (uniforms[..., 1] * self.columns["contiguous"].shape[1])
            .long()
            .clamp(max=self.columns["contiguous"].shape[1] - 1)
        )
        steps = torch.arange(self.length + 1, device=start.device)
        place, row = self.physical_index(start.unsqueeze(1) + steps[:, None]), rows.unsqueeze(1)
        obs, action, contiguous = (self.columns[name][place, row] for name in ("obs", "action", "contiguous"))
        return SequenceBatch(obs, action[:, :-1], contiguous[:, :-1])

    def physical_index(self, age: Tensor) -> Tensor:
        """Return the storage index of a place given by age."""
        return (self.newest_index + 1 + age) % (self.capacity + 1)

    def state_dict(self) -> dict[str, Any]:
        """Return tensors and plain types, ordered by age, on the CPU."""
        columns = {name: value.cpu().clone() for name, value in self.columns.items()}
        return {"newest": self.newest_index, "size": self.size, **columns}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Restore from `state_dict`.

        Raises: ConfigurationError if it was saved with another capacity.
        """
        columns = {name: value.to(device, copy=True) for name, value in state.items() if isinstance(value, Tensor)}
        saved = {len(value) - 1 for value in columns.values()}
        if saved and saved != {self.capacity}:
            raise ConfigurationError(
                f"The stored steps have capacity {max(saved)}, not {self.capacity}: keep data.capacity."
            )
        self.columns, self.newest_index, self.size = columns, state["newest"], state["size"]
