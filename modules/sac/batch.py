"""SAC's training batch: an iteration's minibatches, or one of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from datamodules.core.pytree import tree_map
from datamodules.core.types import ReplayBatch
from modules.functional.q_learning import sequence_priority
from modules.functional.returns import truncated_n_step_return
from modules.sac.sequences import SequenceObs


class SACBatch(NamedTuple):
    """U minibatches of N transitions; every tensor has leading dimensions `[U, N]`, or `[N]` in one minibatch.

    With sequences, N is the number of their windows.

    obs, next_obs: `Obs`, or `SequenceObs` with sequences; normalised if the algorithm normalises.
    action: `[..., dims]` in [-1, 1], or discrete actions from 0.
    return_: discounted rewards of the window.
    terminated: whether the window ends in termination.
    discount: of the value of `next_obs`: gamma to the power of the window's length, 0 after termination.
    extras, next_masks: as in `ReplayBatch`.
    weight: of an entry in the critics' loss.
    """

    obs: Any
    action: Tensor
    return_: Tensor
    terminated: Tensor
    discount: Tensor
    next_obs: Any
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

    @property
    def counts(self) -> Tensor:
        """Return 1 for entries that count, 0 for excluded ones, float."""
        return self.weight.sign()

    def minibatch(self, update: int) -> "SACBatch":
        """Return one of the U minibatches."""
        return self.map(lambda column: column[update])

    def map(self, function: Callable[[Tensor], Tensor]) -> "SACBatch":
        """Apply a function to every tensor."""
        return tree_map(function, self)

    def priority_errors(self, errors: Tensor) -> Tensor:
        """Return the errors that set the priorities of all minibatches' entries: of windows, or of their sequences.

        Args:
            errors: absolute errors of windows, `[U, N]`.
        """
        if not isinstance(self.obs, SequenceObs):
            return errors
        shape = self.obs.context.last_step.shape
        return sequence_priority(errors.view(shape), self.counts.view(shape))


def sac_batch(transitions: ReplayBatch, gamma: float) -> SACBatch:
    """Return the batch with n-step returns and the discounts of their bootstrapped values."""
    columns = (transitions.reward, transitions.num_steps, transitions.terminated)
    return_, discount = truncated_n_step_return(*columns, gamma=gamma)
    batch = SACBatch(
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
    if transitions.context is None:
        return batch
    windows = batch.map(lambda column: column.flatten(1, 2))
    obs, next_obs = SequenceObs(transitions.context), SequenceObs(transitions.context, transitions.next_obs)
    return windows._replace(obs=obs, next_obs=next_obs)
