"""Style of all figures: light background, axes with units, readable at the width of a TensorBoard card.

Figures are created without pyplot, so that they are garbage-collected, and matplotlib is imported with the first one.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from PIL import Image

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c6d31", "#787878")
"""Colours distinct for colour-blind readers (Okabe and Ito 2008; brown instead of yellow, which is faint on white)."""

INK, GREY, PALE = "#1f2328", "#6e7781", "#d8dee4"
SIZE, WIDE = (6.4, 4.0), 9.6
"""Size of a figure in inches, and the width of one with panels side by side."""

DPI = 100
"""Pixels per inch."""

FRAME_MS, REST_MS = 100, 3_000
"""Milliseconds of each frame of a video, and of the last one."""

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
"""Settings of matplotlib for all figures, independent of the user's."""


@contextmanager
def style() -> Iterator[None]:
    """Apply `STYLE` within the block, and restore matplotlib's settings after it."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        yield


def new_figure(
    rows: int = 1, columns: int = 1, size: tuple[float, float] = SIZE, layout: Any = "constrained", **subplots: Any
) -> tuple[Any, Any]:
    """Create a figure of `size` inches and its axes `[rows, columns]`; layout `compressed` suits square axes."""
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
    """Copy the current content of a figure's canvas, uint8 `[H, W, 3]`."""
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()


def encode(figure: Any, kind: str = "png") -> bytes:
    """Render a figure as the content of a file: png, pdf or svg."""
    file = io.BytesIO()
    figure.savefig(file, format=kind)
    return file.getvalue()


def gif(frames: Sequence[np.ndarray]) -> bytes:
    """Encode frames `[H, W, 3]` as a looping GIF that pauses on the last; all share one palette."""
    pictures = [Image.fromarray(frame) for frame in frames]
    some = Image.fromarray(np.concatenate(frames[:: -(-len(frames) // 4)]))
    palette = some.quantize(255, Image.Quantize.MAXCOVERAGE)
    first, *others = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    file = io.BytesIO()
    durations = [FRAME_MS] * len(others) + [REST_MS]
    first.save(file, "GIF", save_all=True, append_images=others, duration=durations, loop=0)
    return file.getvalue()


def legend_below(figure: Any, handles: Sequence[Any], **settings: Any) -> None:
    """Place a legend below all axes, in one row if it fits."""
    widths = [6 + len(handle.get_label()) for handle in handles]  # with the sample of the look, in characters
    room = int(13 * figure.get_figwidth())
    columns = len(handles) if sum(widths) <= room else max(1, room // max(widths))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, **settings)
