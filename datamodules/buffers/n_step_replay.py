"""NStepReplayBuffer: sample n-step windows from a ring buffer, uniformly or by priority."""

from typing import Any

import torch
from torch import Tensor

from datamodules.buffers.ring_buffer import ENDED, TERMINATED, TRUNCATED, VALID, RingBuffer
from datamodules.buffers.sum_tree import SumTree, importance_weights
from datamodules.core.pytree import tree_map
from datamodules.core.types import STATE, Obs, ReplayBatch, Rollout

RESAMPLE_TRIES = 8
"""Candidates drawn for one window if some stored steps are invalid; the first valid candidate is used."""


class NStepReplayBuffer:
    """Replay buffer that samples windows of up to `n_step` steps; implements `datamodules.core.types.Replay`.

    A window begins at any valid step with `n_step` rows after it and ends at the end of its episode, before an invalid
    step, or after `n_step` steps. All U minibatches of an iteration are sampled at once: nothing is stored in between,
    so only priorities differ from sampling one by one, and these are updated once per iteration.

    Args:
        ring: ring buffer to sample from.
        n_step: n, maximum window length.
        device: device of the minibatches.
        has_invalid_steps: whether stored steps can be invalid.
        priorities: sum tree with one entry per stored step; None samples uniformly.

    Attributes:
        beta: exponent of the importance weights, 0-d, annealed by the owner.
        span: number of consecutive steps that a sample needs.
    """

    def __init__(
        self,
        ring: RingBuffer,
        n_step: int,
        device: torch.device,
        *,
        has_invalid_steps: bool,
        priorities: SumTree | None = None,
    ):
        self.ring, self.n_step, self.device, self.has_invalid_steps, self.priorities = (
            ring,
            n_step,
            device,
            has_invalid_steps,
            priorities,
        )
        self.span = n_step
        self.beta = torch.ones((), dtype=torch.float64, device=ring.device)
        self._steps = torch.arange(n_step, device=ring.device)
        self._columns = torch.arange(ring.num_rows, device=ring.device)

    def noise(self, updates: int, batch: int, generator: torch.Generator) -> Tensor:
        """Draw uniforms for `sample`, `[updates, batch, candidates]`, on the generator's device."""
        candidates = RESAMPLE_TRIES if self.has_invalid_steps and self.priorities is None else 1
        shape = (updates, batch, candidates)
        return torch.rand(shape, dtype=torch.float64, device=generator.device, generator=generator)

    def write(self, rollout: Rollout, masks: dict[str, Tensor]) -> None:
        """Store a rollout (see `RingBuffer.write`); new window starts get the largest priority so far."""
        self.ring.write(rollout, masks)
        if self.priorities is None:
            return
        stack, steps = self.ring.frame_stack, len(rollout.reward)
        row = self.ring.counts[0] + torch.arange(1 - self.span, steps + stack, device=self.ring.device)
        complete = (row <= self.ring.counts[0] + steps - self.span) & (row >= stack - 1)
        entry = self._entries(row % self.ring.capacity)
        weight = torch.where(self._begins(entry, complete), self.priorities.maximum, 0.0)
        self.priorities.set_(entry.flatten(), weight.flatten())

    def commit_(self) -> None:
        """Advance the position behind the rollout written last."""
        self.ring.commit_()

    def sample(self, noise: Tensor) -> ReplayBatch:
        """Return minibatches `[U, N]` for given uniforms; a pure function of these and the stored data."""
        entry, weight = self.choose(noise.to(self.ring.device))
        found = self.gather(entry.flatten())
        if weight is not None:
            found = found._replace(loss_weight=found.loss_weight * weight.flatten().float())
        shape = entry.shape
        return tree_map(lambda x: x.view(*shape, *x.shape[1:]).to(self.device, non_blocking=True), found)

    def choose(self, noise: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return indices `[U, N]` for given uniforms, and their importance weights; None if they are uniform."""
        if self.priorities is None:
            return self._uniform(noise), None
        entry, probability = self.priorities.sample_stratified(noise.squeeze(-1))
        return entry, importance_weights(probability, self.beta)

    def gather(self, entry: Tensor) -> ReplayBatch:
        """Return the windows that begin at indices `[M]`; every tensor is `[M, ...]`."""
        ring = self.ring
        steps, inside, last, end = self._one_step(entry) if self.n_step == 1 else self._n_step(entry)
        length, truncated = inside.sum(1), (end & ENDED) == TRUNCATED
        following = ring.offset_index(entry, length)
        next_obs, lost = self._next_obs(following, last, truncated)
        masks = {}
        for name in sorted(ring.masks):
            mask = ring.gather(name, following)
            masks[name[7:]] = mask | ((end & ENDED) > 0).view(-1, *[1] * (mask.dim() - 1))
        return ReplayBatch(
            obs=ring.obs(entry),
            action=ring.gather("action", entry),
            reward=torch.where(inside, ring.gather("reward", steps), 0.0),
            num_steps=length,
            terminated=(end & TERMINATED) > 0,
            next_obs=next_obs,
            extras={name[7:]: ring.gather(name, entry) for name in ring.columns if is_extra(name)},
            next_masks=masks,
            loss_weight=(inside[:, 0] & ~lost).float(),
            indices=entry,
        )

    def update_priorities(self, indices: Tensor, error: Tensor) -> None:
        """Set the priorities of the steps at `ReplayBatch.indices` from absolute errors of the same shape."""
        if self.priorities is not None:
            self.priorities.update_(indices.flatten().to(self.ring.device), error.flatten().to(self.ring.device))

    def cut_(self) -> None:
        """Mark the next step as not contiguous with the last one (see `RingBuffer.break_episode_`)."""
        self.ring.break_episode_()
        if self.priorities is not None:
            entry = self._entries((self.ring.counts[:1] - 1) % self.ring.capacity).flatten()
            valid = (self.ring.gather("flags", entry) & VALID) > 0
            self.priorities.set_(entry, torch.where(valid, self.priorities.levels[0][entry], 0.0))

    def state_dict(self) -> dict[str, Any]:
        """Return all stored data as tensors and plain types."""
        priorities = None if self.priorities is None else self.priorities.state_dict()
        return {"ring": self.ring.state_dict(), "priorities": priorities}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore from `state_dict`, also from a replay buffer with another `n_step` or alpha, or without priorities.

        The valid window starts are computed again; those without a priority get the largest one.

        Raises: ConfigurationError if the state holds other columns than this buffer.
        """
        self.ring.load_state_dict(state["ring"])
        if self.priorities is None:
            return
        if state["priorities"] is not None:
            self.priorities.load_state_dict(state["priorities"])
        oldest, newest = self.ring.counts[0] - self.ring.size, self.ring.counts[0] - self.span
        row = oldest + torch.arange(self.ring.capacity, device=self.ring.device)
        complete = (row <= newest) & (row >= oldest + self.ring.frame_stack - 1)
        entry = self._entries(row % self.ring.capacity)
        weight = self.priorities.levels[0][entry]
        weight = torch.where(weight > 0, weight, self.priorities.maximum)
        weight = torch.where(self._begins(entry, complete), weight, 0.0)
        self.priorities.set_(entry.flatten(), weight.flatten())

    @property
    def min_size(self) -> int:
        """Return the number of newest complete rows in which no window can begin."""
        return self.span - 1 + self.ring.frame_stack - 1

    @property
    def _count(self) -> Tensor:
        return (self.ring.size - self.min_size) * self.ring.num_rows

    def _entries(self, rows: Tensor) -> Tensor:
        return rows.unsqueeze(1) * self.ring.num_rows + self._columns

    def _begins(self, entry: Tensor, complete: Tensor) -> Tensor:
        """Return where a window can begin: valid steps of complete rows; all arguments `[R, B]`, complete `[R]`."""
        return ((self.ring.gather("flags", entry) & VALID) > 0) & complete.unsqueeze(1)

    def _uniform(self, noise: Tensor) -> Tensor:
        """Sample indices `[U, N]` uniformly among valid steps."""
        ring = self.ring
        oldest = ring.counts[0] - ring.size + ring.frame_stack - 1
        entry = ring.offset_index((noise * self._count).long(), oldest)
        if entry.shape[-1] == 1:
            return entry.squeeze(-1)
        valid = (ring.gather("flags", entry) & VALID) > 0
        return entry.gather(-1, valid.to(torch.uint8).argmax(-1, keepdim=True)).squeeze(-1)

    def _one_step(self, entry: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the same as `_n_step` for one-step windows, without a search."""
        flags = self.ring.gather("flags", entry)
        return entry.unsqueeze(1), ((flags & VALID) > 0).unsqueeze(1), entry, flags

    def _n_step(self, entry: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the steps from indices `[M]` on, which are in the window (`[M, n]`), its last step and flags."""
        steps = self.ring.offset_index(entry.unsqueeze(1), self._steps)
        flags = self.ring.gather("flags", steps)
        valid, ended = (flags & VALID) > 0, (flags & ENDED) > 0
        inside = torch.cat([valid[:, :1], valid[:, 1:] & ~ended[:, :-1]], 1).to(torch.uint8).cumprod(1) > 0
        last = (inside.sum(1, keepdim=True) - 1).clamp(min=0)
        return steps, inside, steps.gather(1, last).squeeze(1), flags.gather(1, last).squeeze(1)

    def _next_obs(self, following: Tensor, last: Tensor, truncated: Tensor) -> tuple[Obs, Tensor]:
        """Return the observations after windows, and whether one was overwritten.

        On a CPU true last observations are gathered only if there are any, elsewhere always; the results are equal.
        """
        if self.ring.device.type == "cpu" and not truncated.any():
            return self.ring.obs(following, follows=True), truncated
        number = self.ring.gather("final", last)
        final = torch.where(truncated, number, -1)
        return self.ring.obs(following, final, follows=True), truncated & self.ring.final_obs_lost(number)


def is_extra(column: str) -> bool:
    """Return whether a column of the ring is an extra of single steps, not a policy's state."""
    return column.startswith("extras/") and not column.startswith("extras/" + STATE)
