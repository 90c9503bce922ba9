"""What soft actor-critic learns from: an iteration's minibatches, and one of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from datamodules.core.types import Transitions
from modules.functional.returns import window_return


class SACBatch(NamedTuple):
    """U minibatches of N transitions; every tensor has leading dimensions `[U, N]`, or `[N]` in one minibatch.

    obs, next_obs: as the networks see them.   action: `[..., dims]` in [-1, 1], or choices from 0.
    return_: discounted rewards of the window.   terminated: whether nothing follows it.
    discount: of the value of `next_obs`: gamma to the power of the window's length, or 0.
    extras, next_masks: as in `Transitions`.   weight: what an entry counts in the critics' loss.
    """

    obs: Tensor
    action: Tensor
    return_: Tensor
    terminated: Tensor
    discount: Tensor
    next_obs: Tensor
    extras: dict[str, Tensor]
    next_masks: dict[str, Tensor]
    weight: Tensor

    @property
    def mask(self) -> Tensor | None:
        """Which actions were allowed in `obs`, `[..., A]`; None for all."""
        return self.extras.get("action_mask")

    @property
    def next_mask(self) -> Tensor | None:
        """Which actions are allowed in `next_obs`."""
        return self.next_masks.get("action_mask")

    def minibatch(self, update: int) -> "SACBatch":
        """One of the U minibatches."""
        return self.map(lambda column: column[update])

    def map(self, function: Callable[[Tensor], Tensor]) -> "SACBatch":
        """The same function on every tensor."""
        return SACBatch(*(_mapped(function, column) for column in self))


def sac_batch(transitions: Transitions, gamma: float) -> SACBatch:
    """Sums of discounted rewards, and what the value behind them counts."""
    columns = (transitions.reward, transitions.length, transitions.terminated)
    return_, discount = window_return(*columns, gamma=gamma)
    return SACBatch(
        obs=transitions.obs,
        action=transitions.action,
        return_=return_,
        terminated=transitions.terminated,
        discount=discount,
        next_obs=transitions.next_obs,
        extras=transitions.extras,
        next_masks=transitions.next_masks,
        weight=transitions.weight,
    )


def _mapped(function: Callable[[Tensor], Tensor], column: Any) -> Any:
    if isinstance(column, dict):
        return {name: function(value) for name, value in column.items()}
    return function(column)
