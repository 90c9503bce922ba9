"""What PPO learns from: transitions, or whole sequences of them where the network remembers."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from datamodules.core.types import State
from modules.functional.policy_gradient import Moments, moments, normalised
from modules.optim.distributed import ranks, summed


class PPOBatch(NamedTuple):
    """Transitions to learn from: what was seen and done, what was believed of it, and what it was worth.

    Columns are `[N, ...]`, or `[T, B, ...]` in whole sequences where the network is recurrent. `valid` and `mask` are
    None where every transition counts and every action was allowed, `reset` where there are no sequences.

    reset: where episodes begin.   state: the network's `[B, ...]` before t=0, as it was when the rollout began.
    """

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor
    valid: Tensor | None
    mask: Tensor | None
    reset: Tensor | None
    state: State

    def map(self, function: Callable[[Tensor], Tensor]) -> "PPOBatch":
        """The same function applied to every column there is; the state stays."""
        columns = [None if column is None else function(column) for column in self[:9]]
        return PPOBatch._make([*columns, self.state])

    @property
    def size(self) -> int:
        """Number of transitions, or of sequences: what minibatches are drawn from."""
        return self.advantage.shape[0 if self.reset is None else 1]

    def rows(self, index: Tensor) -> "PPOBatch":
        """The transitions, or the sequences, at `index`."""
        dimension = 0 if self.reset is None else 1
        taken = self.map(lambda column: column.index_select(dimension, index))
        return taken._replace(state={name: leaf.index_select(0, index) for name, leaf in self.state.items()})

    def part(self, part: slice) -> "PPOBatch":
        """A slice of the transitions, or of the sequences: views, nothing is copied."""
        taken = self.map(lambda column: column[part] if self.reset is None else column[:, part])
        return taken._replace(state={name: leaf[part] for name, leaf in self.state.items()})

    def minibatches(self, number: int, order: Tensor | None) -> Iterator["PPOBatch"]:
        """That many minibatches of equal size, as views.

        Args:
            order: a permutation `[size]`, in which the batch is laid out first; None makes minibatch i every n-th row
                from i on, where they stand.
        """
        if order is None:
            yield from (self.part(slice(index, None, number)) for index in range(number))
            return
        shuffled, size = self.rows(order), self.size // number
        yield from (shuffled.part(slice(start, start + size)) for start in range(0, self.size, size))

    def normalised_advantage(self) -> tuple[Tensor, Tensor | None]:
        """Advantages normalised over all ranks, and a factor for means over this rank's valid rows.

        With the factor, such means average to that over the valid rows of all ranks; None stands for 1.
        """
        if ranks() == 1:
            return normalised(self.advantage, self.valid), None
        total = Moments(*summed(torch.stack(moments(self.advantage, self.valid))).unbind())
        share = None if self.valid is None else self.valid.sum() * ranks() / total.number.clamp(min=1)
        return normalised(self.advantage, self.valid, moments=total), share

    def stored(self) -> tuple[dict[str, Any], Tensor | None]:
        """What the objective takes from the batch, and a factor for it (see `normalised_advantage`)."""
        advantage, share = self.normalised_advantage()
        old = {"old_log_prob": self.log_prob, "old_value": self.value}
        return {**old, "advantage": advantage, "target": self.target, "valid": self.valid}, share


def states_at(states: State, index: Tensor) -> State:
    """The states of all rows at the steps `index` `[S, B]`, each leaf `[S x B, ...]` from `[T, B, ...]`.

    An unused slot (-1) takes step 0.
    """
    rows = torch.arange(index.shape[1], device=index.device)
    return {name: leaf[index.clamp(min=0), rows].flatten(0, 1) for name, leaf in states.items()}
