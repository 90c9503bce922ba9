"""The style of every figure: light background, axes with units, readable at the width of a TensorBoard card.

Figures are made without pyplot, so that nothing keeps them alive, and matplotlib is imported with the first of them.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from PIL import Image

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c6d31", "#787878")
"""Distinct for colour-blind readers too (Okabe and Ito 2008; brown instead of yellow, which is faint on white)."""

INK, GREY, PALE = "#1f2328", "#6e7781", "#d8dee4"
SIZE, WIDE = (6.4, 4.0), 9.6
"""Inches of a figure, and the width of one with panels side by side."""

DPI = 100
"""Pixels of an inch."""

FRAME_MS, REST_MS = 100, 3_000
"""How long a video shows each frame, and the last."""

STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.facecolor": "white",
    "axes.formatter.limits": (-4, 5),
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "figure.facecolor": "white",
    "figure.titlesize": 12,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 10,
    "grid.color": PALE,
    "grid.linewidth": 0.8,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "text.color": INK,
    "xtick.color": GREY,
    "xtick.labelcolor": INK,
    "xtick.labelsize": 9,
    "ytick.color": GREY,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 9,
}
"""Settings of matplotlib in all figures, whatever the user's own are."""


@contextmanager
def style() -> Iterator[None]:
    """Apply `STYLE` to all that is drawn within the block, and restore matplotlib's settings after it."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        yield


def new_figure(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = SIZE, layout: Any = "constrained", **subplots: Any
) -> tuple[Any, Any]:
    """Make a figure of `size` inches and its axes `[rows, columns]`; layout `compressed` suits square ones."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=DPI, layout=layout)
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **subplots)


def pixels(figure: Any) -> np.ndarray:
    """Render a figure, uint8 `[H, W, 3]`."""
    figure.canvas.draw()
    return canvas_pixels(figure)


def canvas_pixels(figure: Any) -> np.ndarray:
    """Copy what the canvas of a figure shows now, uint8 `[H, W, 3]`."""
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()


def encode(figure: Any, kind: str = "png") -> bytes:
    """Render a figure as the contents of a file: png, pdf or svg."""
    file = io.BytesIO()
    figure.savefig(file, format=kind)
    return file.getvalue()


def gif(frames: Sequence[np.ndarray]) -> bytes:
    """Encode frames `[H, W, 3]` as a GIF that repeats for ever and rests on the last; all share one palette."""
    pictures = [Image.fromarray(frame) for frame in frames]
    some = Image.fromarray(np.concatenate(frames[:: -(-len(frames) // 4)]))
    palette = some.quantize(255, Image.Quantize.MAXCOVERAGE)
    first, *others = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    file = io.BytesIO()
    durations = [FRAME_MS] * len(others) + [REST_MS]
    first.save(file, "GIF", save_all=True, append_images=others, duration=durations, loop=0)
    return file.getvalue()


def legend_below(figure: Any, handles: Sequence[Any], **settings: Any) -> None:
    """Place a legend under all axes, in one row if it fits, where it hides nothing."""
    widths = [6 + len(handle.get_label()) for handle in handles]  # with the sample of the look, in characters
    room = int(13 * figure.get_figwidth())
    columns = len(handles) if sum(widths) <= room else max(1, room // max(widths))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, **settings)
