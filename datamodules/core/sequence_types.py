"""The words that models of sequences and their data share; `types` holds what everything shares."""

from typing import NamedTuple

from torch import Tensor

from datamodules.core.types import Scalars

AHEAD = (1, 5, 10, 20)
"""Steps ahead that evaluation predicts."""


class Sequences(NamedTuple):
    """Pieces of trajectories, in which each observation may or may not follow from the one before.

    obs: `[..., L+1, N, *obs]`.   action: `[..., L, N, A]`, taken between obs l and obs l+1.
    joined: `[..., L, N]`, False where obs l+1 does not follow from obs l: the episode ended in between, or nothing was
        stored there. Such a step is masked, never padded.
    """

    obs: Tensor
    action: Tensor
    joined: Tensor


class SequenceExperience(NamedTuple):
    """What an iteration of sequence learning is given.

    fresh: the steps collected just now, `[T, B]`; None when learning from stored rollouts.
    extras: what the decisions of the fresh steps held, `{name: [T, B, ...]}`.
    chunks: drawn for U updates, `[U, L, N]`; with U = 0 where nothing is drawn.
    history: everything that is stored, the newest last, `[capacity, B]`; None as above, and where U = 0.
    env_steps: fresh steps, or where there are none, drawn ones.   episodes: as in `Rollout`.
    """

    fresh: Sequences | None
    extras: dict[str, Tensor]
    chunks: Sequences
    history: Sequences | None
    env_steps: int
    episodes: Scalars

    @property
    def ready(self) -> bool:
        """It can always be learned from: what is missing is masked."""
        return True


class HeldOut(NamedTuple):
    """Sequences nobody learns from, and what is true about them where that is known.

    mean: noise-free observations `[L+1, N, *obs]`.   state: true states `[L+1, N, D]`.
    grid: states `[G, D]` that cover the region of interest.   field: the true vector field there, `[G, D]`.
    """

    sequences: Sequences
    mean: Tensor | None = None
    state: Tensor | None = None
    grid: Tensor | None = None
    field: Tensor | None = None
