"""SAC's training batch: an iteration's minibatches, or one of them."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from datamodules.core.pytree import tree_map
from datamodules.core.types import Obs, ReplayBatch
from modules.functional.returns import truncated_n_step_return


class SACBatch(NamedTuple):
    """U minibatches of N transitions; every tensor has leading dimensions `[U, N]`, or `[N]` in one minibatch.

    obs, next_obs: normalised if the algorithm normalises.
    action: `[..., dims]` in [-1, 1], or discrete actions from 0.
    return_: discounted rewards of the window.
    terminated: whether the window ends in termination.
    discount: of the value of `next_obs`: gamma to the power of the window's length, 0 after termination.
    extras, next_masks: as in `ReplayBatch`.
    weight: of an entry in the critics' loss.
    """

    obs: Obs
    action: Tensor
    return_: Tensor
    terminated: Tensor
    discount: Tensor
    next_obs: Obs
    extras: dict[str, Tensor]
    next_masks: dict[str, Tensor]
    weight: Tensor

    @property
    def mask(self) -> Tensor | None:
        """Return the actions allowed in `obs`, `[..., A]`; None for all."""
        return self.extras.get("action_mask")

    @property
    def next_mask(self) -> Tensor | None:
        """Return the actions allowed in `next_obs`."""
        return self.next_masks.get("action_mask")

    def minibatch(self, update: int) -> "SACBatch":
        """Return one of the U minibatches."""
        return self.map(lambda column: column[update])

    def map(self, function: Callable[[Tensor], Tensor]) -> "SACBatch":
        """Apply a function to every tensor."""
        return tree_map(function, self)


def sac_batch(transitions: ReplayBatch, gamma: float) -> SACBatch:
    """Return the batch with n-step returns and the discounts of their bootstrapped values."""
    columns = (transitions.reward, transitions.num_steps, transitions.terminated)
    return_, discount = truncated_n_step_return(*columns, gamma=gamma)
    return SACBatch(
        obs=transitions.obs,
        action=transitions.action,
        return_=return_,
        terminated=transitions.terminated,
        discount=discount,
        next_obs=transitions.next_obs,
        extras=transitions.extras,
        next_masks=transitions.next_masks,
        weight=transitions.loss_weight,
    )
