"""Box of observations in which an agent explores."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from modules.optim.distributed import all_reduce_max


class ObservationBox(nn.Module):
    """Box of observations in which an agent explores, in the units of the observations.

    A latent state lies in the box if its expected observation does. So the box means the same whatever the latent
    coordinates are, and while they change.

    Args:
        observed: Dy, number of elements of an observation.
        low: lower bound of the elements, one number for all or one each; null with a null `high`: the box grows with
            the observations that were visited.
        high: upper bound of the elements.
        margin: fraction of the visited range by which a growing box exceeds it on every side.

    Raises: ValueError for one bound without the other, for another number of bounds, and unless low < high.
    """

    lowest: Tensor
    highest: Tensor

    def __init__(
        self,
        observed: int,
        low: float | Sequence[float] | None = None,
        high: float | Sequence[float] | None = None,
        margin: float = 0.2,
    ):
        super().__init__()
        if (low is None) != (high is None) or margin < 0:
            raise ValueError(
                f"ObservationBox: low is {low}, high {high} and margin {margin}; give both bounds or neither, and a"
                " margin of at least 0."
            )
        self.grows, self.margin = low is None, margin
        self.register_buffer("lowest", _bounds(math.inf if low is None else low, observed))
        self.register_buffer("highest", _bounds(-math.inf if high is None else high, observed))
        if not self.grows and not (self.lowest < self.highest).all():
            raise ValueError(f"ObservationBox: low {low} must be less than high {high}.")

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Return the lower and upper bounds `[Dy]`, with the margin of a growing box; infinite before any visit."""
        if not self.grows:
            return self.lowest, self.highest
        visited = self.lowest <= self.highest
        margin = self.margin * (self.highest - self.lowest)
        low = torch.where(visited, self.lowest - margin, -math.inf)
        return low, torch.where(visited, self.highest + margin, math.inf)

    def visit_(self, obs: Tensor) -> None:
        """Extend a growing box to observations `[M, Dy]` of all ranks; a box with given bounds stays as it is."""
        if not self.grows:
            return
        bounds = torch.stack([-self.lowest, self.highest])
        if len(obs):
            bounds = torch.maximum(bounds, torch.stack([-obs.amin(0), obs.amax(0)]))
        lowest, highest = all_reduce_max(bounds)
        self.lowest.copy_(-lowest)
        self.highest.copy_(highest)

    def excess(self, obs: Tensor) -> Tensor:
        """Return by how much observations `[..., Dy]` exceed the bounds: positive above, negative below, 0 inside."""
        low, high = self.bounds
        return (obs - high).clamp(min=0) + (obs - low).clamp(max=0)


def _bounds(value: float | Sequence[float], observed: int) -> Tensor:
    given = torch.as_tensor(value, dtype=torch.float32)
    if given.dim() and len(given) != observed:
        raise ValueError(f"ObservationBox: there are {len(given)} bounds for observations of {observed} elements.")
    return given.expand(observed).clone()
