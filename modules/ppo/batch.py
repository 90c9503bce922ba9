"""PPO's training batch: transitions, or whole sequences of them for a recurrent network."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from datamodules.core.pytree import tree_map
from datamodules.core.types import Obs, State
from modules.functional.policy_gradient import Moments, moments, normalize
from modules.optim.distributed import all_reduce_sum, world_size


class VTraceInputs(NamedTuple):
    """Inputs of V-trace that `PPOBatch` lacks, to recompute the advantages of segments.

    reward, next_value, terminated, truncated: `[T, S]`, as in `modules.functional.returns.vtrace_correction`.
    behavior_log_prob: `[T, S]` of the policy that acted; None if it is that of the batch.
    next_advantage: `[1, S]`, of the step after the segment; 0 where the rollout ends.
    """

    reward: Tensor
    next_value: Tensor
    terminated: Tensor
    truncated: Tensor
    behavior_log_prob: Tensor | None
    next_advantage: Tensor | None = None


class PPOBatch(NamedTuple):
    """Transitions of a rollout with their old log-probabilities and values, advantages and value targets.

    Columns are `[N, ...]`, or `[T, S, ...]` in segments: T consecutive steps of an environment. `valid` and `mask` are
    None if every transition is valid and every action allowed, `episode_start` if the network is feed-forward.

    state: the network's `[S, ...]` before the first step of each segment.
    extras: columns of auxiliary losses, by their name.
    weight: `[1, S]`, importance weights of the segments in the policy loss; None stands for 1.
    trace: only in segments, if advantages are recomputed.
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
    weight: Tensor | None = None
    trace: VTraceInputs | None = None

    def map(self, function: Callable[[Tensor], Tensor]) -> "PPOBatch":
        """Apply a function to every column; the state does not change."""
        return tree_map(function, self._replace(state={}))._replace(state=self.state)

    @property
    def in_segments(self) -> bool:
        """Return whether columns are `[T, S, ...]`."""
        return self.advantage.dim() == 2

    @property
    def size(self) -> int:
        """Return the number of transitions, or of segments, that minibatches are drawn from."""
        return self.advantage.shape[-1]

    def select(self, index: Tensor) -> "PPOBatch":
        """Return the transitions, or the segments, at `index`."""
        dimension = 1 if self.in_segments else 0
        selected = self.map(lambda column: column.index_select(dimension, index))
        return selected._replace(state={name: leaf.index_select(0, index) for name, leaf in self.state.items()})

    def slice(self, part: slice) -> "PPOBatch":
        """Return a slice of the transitions, or of the segments, as views."""
        selected = self.map(lambda column: column[:, part] if self.in_segments else column[part])
        return selected._replace(state={name: leaf[part] for name, leaf in self.state.items()})

    def minibatches(self, number: int, order: Tensor | None) -> Iterator["PPOBatch"]:
        """Yield `number` minibatches of equal size, as views.

        Args:
            order: indices `[size]`, applied first with one copy; None makes a minibatch of every `number`-th row,
                without a copy. The one that begins with row 0 comes last: compiled code takes the alignment of its
                first arguments as given, and would copy the others.
        """
        if order is None:
            yield from map(self.slice, self.minibatch_indices(number, None))
        else:
            yield from self.select(order).pieces(number)

    def minibatch_indices(self, number: int, order: Tensor | None) -> list[Any]:
        """Return the indices, or the slices, of the parts that each of `minibatches` consists of."""
        return [slice(i, None, number) for i in reversed(range(number))] if order is None else [*order.chunk(number)]

    def pieces(self, number: int) -> Iterator["PPOBatch"]:
        """Yield `number` successive pieces of equal size, as views."""
        size = self.size // number
        yield from (self.slice(slice(start, start + size)) for start in range(0, self.size, size))

    def normalized_advantage(self) -> tuple[Tensor, Tensor | None]:
        """Return advantages normalised over all ranks and weighted, and a factor for means over this rank's valid rows.

        The factor makes such means average to the mean over the valid rows of all ranks; None stands for 1.
        """
        loss_scale = None
        if world_size() == 1:
            advantage = normalize(self.advantage, self.valid)
        else:
            total = Moments(*all_reduce_sum(torch.stack(moments(self.advantage, self.valid))).unbind())
            if self.valid is not None:
                loss_scale = self.valid.sum() * world_size() / total.number.clamp(min=1)
            advantage = normalize(self.advantage, self.valid, moments=total)
        return advantage if self.weight is None else advantage * self.weight, loss_scale


class NormalizedAdvantage(NamedTuple):
    """Advantages of a minibatch as the policy loss uses them, its value targets, and the factor of its loss.

    loss_scale: as `PPOBatch.normalized_advantage` returns it; None stands for 1.
    """

    advantage: Tensor
    target: Tensor
    loss_scale: Tensor | None


class PPOLoss(NamedTuple):
    """Loss of a minibatch, and without gradient its metrics and the values of its observations.

    metrics: policy loss, value loss, entropy, approximate KL and clip fraction, `[5]`, then those of auxiliary losses.
    """

    loss: Tensor
    metrics: Tensor
    value: Tensor
