"""Projections of vector fields and states of any dimension onto planes."""

from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from callbacks.figures.plotting import WIDE

PLANES = 3
"""Maximum number of planes: all of three dimensions, and the first ones of more."""

ARROWS = 15
"""Arrows along each side of a plane."""

MARGIN = 0.05
"""Margin of a box around states, relative to its width."""

SPEEDS = "viridis_r"
"""Colour map of speeds: slow is light, fast is dark."""


class Scale(NamedTuple):
    """Scale of compared arrows.   length: plane widths per second.   colour: state units per second."""

    length: float
    colour: float


class View(NamedTuple):
    """Plane of two axes.

    axes: their indices.   low, high: corners of the visible part `[2]`.
    states: start points of the arrows, in all dimensions `[M, D]`.
    true: the true field at these points `[M, D]`, if known.
    """

    axes: list[int]
    low: Tensor
    high: Tensor
    states: Tensor
    true: Tensor | None

    def draw_axes(self, axes: Any) -> None:
        """Set up the axes as a labelled square."""
        margin = (self.high - self.low) / ARROWS  # for arrows that start at the edge
        (left, bottom), (right, top) = (self.low - margin).tolist(), (self.high + margin).tolist()
        first, second = self.axes
        axes.set(xlim=(left, right), ylim=(bottom, top), xlabel=f"state {first}", ylabel=f"state {second}")
        axes.set_box_aspect(1)

    def scale(self, field: Tensor) -> "Scale":
        """Return a scale for a field `[M, 2]` of this plane that nine in ten arrows do not exceed."""
        widths = (self.high - self.low).to(field.device)
        return Scale(*(float(speed.norm(dim=1).quantile(0.9).clamp(min=1e-9)) for speed in (field / widths, field)))

    def draw_arrows(self, axes: Any, start: Tensor, field: Tensor, scale: "Scale") -> Any:
        """Draw a field `[M, 2]` at points `[M, 2]`; return the artist.

        An arrow of the scale's length is as long as the distance between points; longer ones are shortened to it.
        """
        widths, field = (self.high - self.low).cpu(), field.cpu()
        length = field / widths / scale.length
        length = length / length.norm(dim=1, keepdim=True).clamp(min=1) * widths / ARROWS
        return axes.quiver(
            *start.cpu().T.numpy(), *length.T.numpy(), field.norm(dim=1).numpy(), cmap=SPEEDS, clim=(0, scale.colour),
            angles="xy", scale_units="xy", scale=1, width=0.007, headwidth=3.5, headlength=4, headaxislength=3.5,
            zorder=3,
        )  # fmt: skip

    def project(self, states: Tensor) -> Tensor:
        """Return the projection `[..., 2]` of states `[..., D]`."""
        return states[..., self.axes]


def views(pl_module: Any, held_out: Any, steps: int) -> list[View]:
    """Return the planes of all pairs of axes.

    If the true field is known, arrows start on a slice of its grid through the middle of the box; otherwise at held-out
    states, which are in the region of the data.

    Args:
        steps: number of steps of the held-out sequences to use.
    """
    has_true_field = held_out.grid is not None
    if has_true_field:
        states, field = held_out.grid, held_out.field
    else:
        states, field = pl_module.predicted(held_out, held_out.sequences.obs.shape[1], steps)[1].flatten(0, 1), None
    low, high = states.amin(0), states.amax(0)
    margin = torch.zeros_like(low) if has_true_field else MARGIN * (high - low) + 1e-6
    low, high = low - margin, high + margin
    planes = []
    for pair in list(combinations(range(states.shape[1]), 2))[:PLANES]:
        index = sliced(states, pair) if has_true_field else spread(states)
        axes = list(pair)
        planes.append(View(axes, low[axes], high[axes], states[index], None if field is None else field[index]))
    return planes


def draw_speed_bar(figure: Any, scale: Scale, axes: Any) -> None:
    """Add a colour bar of speeds beside axes."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    colours = ScalarMappable(Normalize(0, scale.colour), SPEEDS)
    bar = figure.colorbar(colours, ax=axes, extend="max", shrink=0.9, pad=0.02)
    bar.set_label("speed (state units / s)")
    bar.outline.set_visible(False)


def panel_size(columns: int) -> tuple[float, float]:
    """Return the size in inches of a figure of one row of square panels."""
    return (5.6, 4.6) if columns == 1 else (WIDE, 3.7)


def sliced(grid: Tensor, axes: tuple[int, int]) -> Tensor:
    """Return a slice of a cubic grid `[P^D, D]` along two axes, in the middle of the others, at most `ARROWS` wide."""
    dimensions = grid.shape[1]
    side = round(len(grid) ** (1 / dimensions))
    kept = torch.arange(0, side, -(-side // ARROWS), device=grid.device)
    middle = kept.new_tensor([side // 2])
    places = torch.cartesian_prod(*(kept if axis in axes else middle for axis in range(dimensions)))
    strides = side ** torch.arange(dimensions - 1, -1, -1, device=grid.device)
    return (places.view(-1, dimensions) * strides).sum(1)


def spread(states: Tensor) -> Tensor:
    """Return evenly spaced rows of `[M, D]` from first to last, `ARROWS` squared at most."""
    return torch.linspace(0, len(states) - 1, min(len(states), ARROWS**2), device=states.device).long()
