"""What is drawn from a ring: windows of a few steps, uniformly or by priority."""

from typing import Any

import torch
from torch import Tensor

from datamodules.buffers.ring_buffer import ENDED, TERMINATED, TRUNCATED, VALID, Ring
from datamodules.buffers.sum_tree import Priorities, importance_weights
from datamodules.core.pytree import mapped
from datamodules.core.types import Rollout, Transitions

CANDIDATES = 8
"""Places drawn for one window where some steps do not count, of which the first that counts is taken."""


class WindowReplay:
    """Draws windows of up to `n_step` steps from a ring; a `datamodules.core.types.Replay`.

    A window begins at any valid step that has `n_step` rows after it and ends with its episode, before a step that does
    not count, or after `n_step` steps. All U minibatches of an iteration are drawn at once; since nothing is stored
    in between, that is the same as one after the other, but for priorities, which change once an iteration.

    Args:
        ring: what to draw from.
        n_step: n, the longest window.
        device: where the minibatches go.
        phantoms: whether some steps stored may not count.
        priorities: one a stored step; None samples uniformly.

    Attributes:
        beta: of the importance weights, 0-d, for the owner to anneal.
    """

    def __init__(
        self, ring: Ring, n_step: int, device: torch.device, *, phantoms: bool, priorities: Priorities | None = None
    ):
        self.ring, self.n_step, self.device, self.phantoms, self.priorities = ring, n_step, device, phantoms, priorities
        self.beta = torch.ones((), dtype=torch.float64, device=ring.device)
        self._steps = torch.arange(n_step, device=ring.device)
        self._columns = torch.arange(ring.width, device=ring.device)

    def noise(self, updates: int, batch: int, generator: torch.Generator) -> Tensor:
        """Uniforms for `sample`, `[updates, batch, candidates]`, on the generator's device."""
        candidates = CANDIDATES if self.phantoms and self.priorities is None else 1
        shape = (updates, batch, candidates)
        return torch.rand(shape, dtype=torch.float64, device=generator.device, generator=generator)

    def write(self, rollout: Rollout, masks: dict[str, Tensor]) -> None:
        """Store a rollout (see `Ring.write`) and give what can begin a window now the largest priority so far."""
        self.ring.write(rollout, masks)
        if self.priorities is None:
            return
        stack, steps = self.ring.frame_stack, len(rollout.reward)
        row = self.ring.counts[0] + torch.arange(1 - self.n_step, steps + stack, device=self.ring.device)
        complete = (row <= self.ring.counts[0] + steps - self.n_step) & (row >= stack - 1)
        entry = self._entries(row % self.ring.rows)
        weight = torch.where(self._begins(entry, complete), self.priorities.maximum, 0.0)
        self.priorities.set_(entry.flatten(), weight.flatten())

    def sample(self, noise: Tensor) -> Transitions:
        """Minibatches `[U, N]` at the places that `noise` says; a pure function of it and of what is stored."""
        noise = noise.to(self.ring.device)
        if self.priorities is None:
            entry, weight = self._uniform(noise), None
        else:
            entry, probability = self.priorities.stratified(noise.squeeze(-1))
            weight = importance_weights(probability, self.beta)
        found = self.windows(entry.flatten())
        if weight is not None:
            found = found._replace(weight=found.weight * weight.flatten().float())
        shape = entry.shape
        return mapped(lambda x: x.view(*shape, *x.shape[1:]).to(self.device, non_blocking=True), found)

    def windows(self, entry: Tensor) -> Transitions:
        """The windows that begin at entries `[M]`; everything is `[M, ...]`."""
        ring = self.ring
        steps, inside, last, end = self._single(entry) if self.n_step == 1 else self._several(entry)
        length, truncated = inside.sum(1), (end & ENDED) == TRUNCATED
        following = ring.later(entry, length)
        next_obs, lost = self._after(following, last, truncated)
        masks = {}
        for name in sorted(ring.masks):
            mask = ring.read(name, following)
            masks[name[7:]] = mask | ((end & ENDED) > 0).view(-1, *[1] * (mask.dim() - 1))
        return Transitions(
            obs=ring.obs(entry),
            action=ring.read("action", entry),
            reward=torch.where(inside, ring.read("reward", steps), 0.0),
            length=length,
            terminated=(end & TERMINATED) > 0,
            next_obs=next_obs,
            extras={name[7:]: ring.read(name, entry) for name in ring.columns if name.startswith("extras/")},
            next_masks=masks,
            weight=(inside[:, 0] & ~lost).float(),
            entry=entry,
        )

    def reprioritize_(self, entry: Tensor, error: Tensor) -> None:
        """Weigh the steps at `Transitions.entry` by their absolute errors, of the same shape."""
        if self.priorities is not None:
            self.priorities.update_(entry.flatten().to(self.ring.device), error.flatten().to(self.ring.device))

    def cut_(self) -> None:
        """The next step does not continue the last one (see `Ring.cut_`)."""
        self.ring.cut_()
        if self.priorities is not None:
            entry = self._entries((self.ring.counts[:1] - 1) % self.ring.rows).flatten()
            valid = (self.ring.read("flags", entry) & VALID) > 0
            self.priorities.set_(entry, torch.where(valid, self.priorities.levels[0][entry], 0.0))

    def state_dict(self) -> dict[str, Any]:
        """Everything stored; tensors and plain types."""
        priorities = None if self.priorities is None else self.priorities.state_dict()
        return {"ring": self.ring.state_dict(), "priorities": priorities}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`, also of a replay of another `n_step` or alpha, or of a uniform one.

        Which steps can begin a window is found out anew; those that had no weight get the largest.

        Raises: UsageError if it holds something else than this replay stores.
        """
        self.ring.load_state_dict(state["ring"])
        if self.priorities is None:
            return
        if state["priorities"] is not None:
            self.priorities.load_state_dict(state["priorities"])
        oldest, newest = self.ring.counts[0] - self.ring.size, self.ring.counts[0] - self.n_step
        row = oldest + torch.arange(self.ring.rows, device=self.ring.device)
        complete = (row <= newest) & (row >= oldest + self.ring.frame_stack - 1)
        entry = self._entries(row % self.ring.rows)
        weight = self.priorities.levels[0][entry]
        weight = torch.where(weight > 0, weight, self.priorities.maximum)
        weight = torch.where(self._begins(entry, complete), weight, 0.0)
        self.priorities.set_(entry.flatten(), weight.flatten())

    @property
    def margin(self) -> int:
        """Complete rows in which no window can begin."""
        return self.n_step - 1 + self.ring.frame_stack - 1

    @property
    def _count(self) -> Tensor:
        return (self.ring.size - self.margin) * self.ring.width

    def _entries(self, rows: Tensor) -> Tensor:
        return rows.unsqueeze(1) * self.ring.width + self._columns

    def _begins(self, entry: Tensor, complete: Tensor) -> Tensor:
        """Where a window can begin: at valid steps of rows that are complete; all `[R, B]` but complete `[R]`."""
        return ((self.ring.read("flags", entry) & VALID) > 0) & complete.unsqueeze(1)

    def _uniform(self, noise: Tensor) -> Tensor:
        """Entries `[U, N]`, each of the valid ones equally likely."""
        ring = self.ring
        oldest = ring.counts[0] - ring.size + ring.frame_stack - 1
        entry = ring.later((noise * self._count).long(), oldest)
        if entry.shape[-1] == 1:
            return entry.squeeze(-1)
        valid = (ring.read("flags", entry) & VALID) > 0
        return entry.gather(-1, valid.to(torch.uint8).argmax(-1, keepdim=True)).squeeze(-1)

    def _single(self, entry: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `_several`, of windows of one step: nothing to search."""
        flags = self.ring.read("flags", entry)
        return entry.unsqueeze(1), ((flags & VALID) > 0).unsqueeze(1), entry, flags

    def _several(self, entry: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Steps from entries `[M]` on and which of them are inside a window, `[M, n]`; its last one and its flags."""
        steps = self.ring.later(entry.unsqueeze(1), self._steps)
        flags = self.ring.read("flags", steps)
        valid, ended = (flags & VALID) > 0, (flags & ENDED) > 0
        inside = torch.cat([valid[:, :1], valid[:, 1:] & ~ended[:, :-1]], 1).to(torch.uint8).cumprod(1) > 0
        last = (inside.sum(1, keepdim=True) - 1).clamp(min=0)
        return steps, inside, steps.gather(1, last).squeeze(1), flags.gather(1, last).squeeze(1)

    def _after(self, following: Tensor, last: Tensor, truncated: Tensor) -> tuple[Tensor, Tensor]:
        """Observations after windows, and whether one was overwritten.

        On a CPU true last observations are looked for only if there are any; elsewhere always. The results agree.
        """
        if self.ring.device.type == "cpu" and not truncated.any():
            return self.ring.obs(following, follows=True), truncated
        number = self.ring.read("final", last)
        final = torch.where(truncated, number, -1)
        return self.ring.obs(following, final, follows=True), truncated & self.ring.lost(number)
