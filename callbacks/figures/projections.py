"""The planes in which dynamics of any number of dimensions are looked at."""

from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from callbacks.figures.plotting import WIDE

PLANES = 3
"""At most so many: all of three dimensions, and of more the first."""

ARROWS = 15
"""Arrows along each side of a plane."""

MARGIN = 0.05
"""Of a box around states, in widths of it."""


SPEEDS = "viridis_r"
"""Colour map of speeds: slow is light, fast is dark."""


class Scale(NamedTuple):
    """Of arrows that are compared.   length: widths of the plane a second.   colour: state units a second."""

    length: float
    colour: float


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

    def draw_axes(self, axes: Any) -> None:
        """Show the plane as a square, its axes named."""
        margin = (self.high - self.low) / ARROWS  # for arrows that start at the edge
        (left, bottom), (right, top) = (self.low - margin).tolist(), (self.high + margin).tolist()
        first, second = self.axes
        axes.set(xlim=(left, right), ylim=(bottom, top), xlabel=f"state {first}", ylabel=f"state {second}")
        axes.set_box_aspect(1)

    def scale(self, field: Tensor) -> "Scale":
        """The scale that suits a field `[M, 2]` of this plane: nine in ten arrows do not exceed it."""
        widths = (self.high - self.low).to(field.device)
        return Scale(*(float(speed.norm(dim=1).quantile(0.9).clamp(min=1e-9)) for speed in (field / widths, field)))

    def draw_arrows(self, axes: Any, start: Tensor, field: Tensor, scale: "Scale") -> Any:
        """Draw a field `[M, 2]` at points `[M, 2]`; return the artist.

        An arrow of the scale's length is a space between points long, and none is longer.
        """
        widths, field = (self.high - self.low).cpu(), field.cpu()
        length = field / widths / scale.length
        length = length / length.norm(dim=1, keepdim=True).clamp(min=1) * widths / ARROWS
        return axes.quiver(
            *start.cpu().T.numpy(), *length.T.numpy(), field.norm(dim=1).numpy(), cmap=SPEEDS, clim=(0, scale.colour),
            angles="xy", scale_units="xy", scale=1, width=0.007, headwidth=3.5, headlength=4, headaxislength=3.5,
            zorder=3,
        )  # fmt: skip

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


def draw_speed_bar(figure: Any, scale: Scale, axes: Any) -> None:
    """Add the colours of speeds beside axes."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    colours = ScalarMappable(Normalize(0, scale.colour), SPEEDS)
    bar = figure.colorbar(colours, ax=axes, extend="max", shrink=0.9, pad=0.02)
    bar.set_label("speed (state units / s)")
    bar.outline.set_visible(False)


def panel_size(columns: int) -> tuple[float, float]:
    """Inches of a figure of one row of square panels."""
    return (5.6, 4.6) if columns == 1 else (WIDE, 3.7)


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
