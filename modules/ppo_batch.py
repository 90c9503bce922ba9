"""What PPO learns from: transitions, or whole sequences of them where the network remembers."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.types import State


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
        taken = self.map(partial(torch.index_select, dim=0 if self.reset is None else 1, index=index))
        return taken._replace(state={name: leaf.index_select(0, index) for name, leaf in self.state.items()})


def states_at(states: State, index: Tensor) -> State:
    """The states of all rows at the steps `index` `[S, B]`, each leaf `[S x B, ...]` from `[T, B, ...]`.

    An unused slot (-1) takes step 0.
    """
    rows = torch.arange(index.shape[1], device=index.device)
    return {name: leaf[index.clamp(min=0), rows].flatten(0, 1) for name, leaf in states.items()}
