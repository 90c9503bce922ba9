"""Batch types of sequence models and their data modules."""

from typing import NamedTuple

from torch import Tensor

from datamodules.core.types import MetricVector

PREDICTION_STEPS = (1, 5, 10, 20)
"""Prediction horizons of the evaluation, in steps."""


class SequenceBatch(NamedTuple):
    """Batch of trajectory pieces in which consecutive observations may or may not be contiguous.

    obs: `[..., L+1, N, *obs]`.   action: `[..., L, N, A]`, taken between obs l and obs l+1.
    contiguous: `[..., L, N]`, False if obs l+1 does not follow obs l: the episode ended in between, or the place is
        empty. Such a step is masked, not padded.
    """

    obs: Tensor
    action: Tensor
    contiguous: Tensor


class SequenceIteration(NamedTuple):
    """Data of one iteration of sequence learning.

    new_sequences: the steps just collected, `[T, B]`; None when learning from stored rollouts.
    extras: the policy outputs' extras of the new steps, `{name: [T, B, ...]}`.
    minibatches: minibatches of U updates, `[U, L, N]`; U = 0 if nothing is sampled.
    all_stored: everything that is stored, oldest first, `[capacity, B]`; None without new sequences or if U = 0.
    env_steps: number of new steps, or of sampled steps if there are none.   episodes: as in `Rollout`.
    """

    new_sequences: SequenceBatch | None
    extras: dict[str, Tensor]
    minibatches: SequenceBatch
    all_stored: SequenceBatch | None
    env_steps: int
    episodes: MetricVector

    @property
    def agent_steps(self) -> None:
        """Return None: there is one agent."""

    @property
    def is_ready(self) -> bool:
        """Return True: missing data are masked."""
        return True


class ValidationData(NamedTuple):
    """Held-out sequences, and the true states and vector field if they are known.

    mean: noise-free observations `[L+1, N, *obs]`.   state: true states `[L+1, N, D]`.
    grid: states `[G, D]` that cover the region of interest.   field: the true vector field there, `[G, D]`.
    """

    sequences: SequenceBatch
    mean: Tensor | None = None
    state: Tensor | None = None
    grid: Tensor | None = None
    field: Tensor | None = None
