"""The planes in which dynamics of any number of dimensions are looked at."""

from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from callbacks.canvas import ARROWS, Canvas

PLANES = 3
"""At most so many: all of three dimensions, and of more the first."""

MARGIN = 0.05
"""Of a box around states, in widths of it."""


class View(NamedTuple):
    """A plane of two axes.

    axes: their numbers.   low, high: corners of what is shown `[2]`.
    states: where arrows start, in all dimensions `[M, D]`.   true: the true field there `[M, D]`, where it is known.
    """

    axes: list[int]
    low: Tensor
    high: Tensor
    states: Tensor
    true: Tensor | None

    def canvas(self) -> Canvas:
        """An empty panel of it."""
        return Canvas(self.low, self.high)

    def seen(self, states: Tensor) -> Tensor:
        """States `[..., D]` as they appear in it, `[..., 2]`."""
        return states[..., self.axes]


def views(pl_module: Any, held_out: Any, steps: int) -> list[View]:
    """The planes of each two axes.

    Where the true field is known, arrows start on a slice of its grid through the middle of the box; elsewhere at
    held-out states, where the model is asked about what can happen.

    Args:
        steps: of the held-out sequences that are looked at.
    """
    known = held_out.grid is not None
    if known:
        states, field = held_out.grid, held_out.field
    else:
        states, field = pl_module.predicted(held_out, held_out.sequences.obs.shape[1], steps)[1].flatten(0, 1), None
    low, high = states.amin(0), states.amax(0)
    margin = torch.zeros_like(low) if known else MARGIN * (high - low) + 1e-6
    low, high = low - margin, high + margin
    found = []
    for pair in list(combinations(range(states.shape[1]), 2))[:PLANES]:
        index = sliced(states, pair) if known else spread(states)
        axes = list(pair)
        found.append(View(axes, low[axes], high[axes], states[index], None if field is None else field[index]))
    return found


def sliced(grid: Tensor, axes: tuple[int, int]) -> Tensor:
    """Rows of a cubic grid `[P^D, D]` in the middle of all axes but two, `ARROWS` along each of those at most."""
    dimensions = grid.shape[1]
    side = round(len(grid) ** (1 / dimensions))
    kept = torch.arange(0, side, -(-side // ARROWS), device=grid.device)
    middle = kept.new_tensor([side // 2])
    places = torch.cartesian_prod(*(kept if axis in axes else middle for axis in range(dimensions)))
    strides = side ** torch.arange(dimensions - 1, -1, -1, device=grid.device)
    return (places.view(-1, dimensions) * strides).sum(1)


def spread(states: Tensor) -> Tensor:
    """Rows of `[M, D]` from first to last, evenly, `ARROWS` squared at most."""
    return torch.linspace(0, len(states) - 1, min(len(states), ARROWS**2), device=states.device).long()
