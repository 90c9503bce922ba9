"""PPO's training batch: transitions, or whole sequences of them for a recurrent network."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from datamodules.core.pytree import tree_map
from datamodules.core.types import Obs, State
from modules.functional.policy_gradient import Moments, moments, normalize
from modules.optim.distributed import all_reduce_sum, world_size


class PPOBatch(NamedTuple):
    """Transitions of a rollout with their old log-probabilities and values, advantages and value targets.

    Columns are `[N, ...]`, or `[T, B, ...]` in whole sequences if the network is recurrent. `valid` and `mask` are None
    if every transition is valid and every action allowed, `episode_start` without sequences.

    state: the network's `[B, ...]` before t=0, when the rollout began.
    extras: columns of auxiliary losses, by their name.
    """

    obs: Obs
    action: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor
    valid: Tensor | None
    mask: Tensor | None
    episode_start: Tensor | None
    state: State
    extras: dict[str, Any] = {}  # noqa: RUF012  # never changed in place

    def map(self, function: Callable[[Tensor], Tensor]) -> "PPOBatch":
        """Apply a function to every column; the state does not change."""
        return tree_map(function, self._replace(state={}))._replace(state=self.state)

    @property
    def size(self) -> int:
        """Return the number of transitions, or of sequences, that minibatches are drawn from."""
        return self.advantage.shape[0 if self.episode_start is None else 1]

    def select(self, index: Tensor) -> "PPOBatch":
        """Return the transitions, or the sequences, at `index`."""
        dimension = 0 if self.episode_start is None else 1
        selected = self.map(lambda column: column.index_select(dimension, index))
        return selected._replace(state={name: leaf.index_select(0, index) for name, leaf in self.state.items()})

    def slice(self, part: slice) -> "PPOBatch":
        """Return a slice of the transitions, or of the sequences, as views."""
        selected = self.map(lambda column: column[part] if self.episode_start is None else column[:, part])
        return selected._replace(state={name: leaf[part] for name, leaf in self.state.items()})

    def minibatches(self, number: int, order: Tensor | None) -> Iterator["PPOBatch"]:
        """Yield `number` minibatches of equal size, as views.

        Args:
            order: a permutation `[size]`, applied first with one copy; None makes minibatch i every `number`-th row
                from i on, without a copy.
        """
        if order is None:
            yield from (self.slice(slice(index, None, number)) for index in range(number))
            return
        shuffled, size = self.select(order), self.size // number
        yield from (shuffled.slice(slice(start, start + size)) for start in range(0, self.size, size))

    def normalized_advantage(self) -> tuple[Tensor, Tensor | None]:
        """Return advantages normalised over all ranks, and a factor for means over this rank's valid rows.

        The factor makes such means average to the mean over the valid rows of all ranks; None stands for 1.
        """
        if world_size() == 1:
            return normalize(self.advantage, self.valid), None
        total = Moments(*all_reduce_sum(torch.stack(moments(self.advantage, self.valid))).unbind())
        share = None if self.valid is None else self.valid.sum() * world_size() / total.number.clamp(min=1)
        return normalize(self.advantage, self.valid, moments=total), share
