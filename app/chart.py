"""Curves with their intervals as a picture, drawn with Pillow, which TensorBoard brings along."""

import math
from collections.abc import Mapping

from PIL import Image, ImageDraw, ImageFont

from app.comparison import Band

FINE = 2  # drawn so many times larger, then reduced: smooth lines
SIZE, MARGIN = (960, 560), (70, 30, 30, 50)  # without names; left, top, right, bottom
LINE = 20  # for each name, above the plot, where it hides nothing
PAPER, INK, GRID = "#ffffff", "#1f2328", "#d8dee4"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#787878", "#000000")
"""Told apart by colour-blind eyes too (Okabe and Ito 2008)."""


class Axes:
    """From steps and values to pixels.

    Args:
        steps: the largest step; the axis begins at 0.
        low, high: of the values.
        names: height of what stands above the plot.
    """

    def __init__(self, steps: float, low: float, high: float, names: int):
        self.steps, self.low, self.high, self.names = steps, low, high, names

    def at(self, step: float, value: float) -> tuple[float, float]:
        """The pixel of a point; what lies outside is drawn at the edge."""
        left, top, right, bottom = (edge * FINE for edge in MARGIN)
        across = (SIZE[0] * FINE - left - right) * step / self.steps
        share = min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))
        return left + across, (SIZE[1] + self.names) * FINE - bottom - (SIZE[1] * FINE - top - bottom) * share


def chart(bands: Mapping[str, Band], metric: str, threshold: float | None) -> Image.Image:
    """A line for every setting in its interval, a dashed line at the threshold if there is one; the names above."""
    axes = axes_of(bands, threshold)
    size = (SIZE[0], SIZE[1] + axes.names)
    picture = Image.new("RGB", (size[0] * FINE, size[1] * FINE), PAPER)
    draw = ImageDraw.Draw(picture, "RGBA")
    font = ImageFont.load_default(14 * FINE)
    for value in ticks(axes.low, axes.high):
        draw.line([axes.at(0, value), axes.at(axes.steps, value)], GRID, FINE)
        draw.text(axes.at(0, value), f"{value:g} ", INK, font, anchor="rm")
    for step in ticks(0, axes.steps):
        x, y = axes.at(step, axes.low)
        draw.text((x, y + 6 * FINE), f"{step:,.0f}", INK, font, anchor="mt")
    for number, (name, band) in enumerate(bands.items()):
        colour = COLOURS[number % len(COLOURS)]
        draw_band(draw, axes, band, colour)
        draw.text((MARGIN[0] * FINE, (4 + LINE * (number + 1)) * FINE), name, colour, font)
    for piece in range(0, 40 if threshold is not None else 0, 2):
        assert threshold is not None
        ends = [axes.at(axes.steps * part / 40, threshold) for part in (piece, piece + 1)]
        draw.line(ends, INK, FINE)
    draw.text((MARGIN[0] * FINE, 4 * FINE), f"{metric} against environment steps", INK, font)
    return picture.resize(size, Image.Resampling.LANCZOS)


def draw_band(draw: ImageDraw.ImageDraw, axes: Axes, band: Band, colour: str) -> None:
    """One setting."""
    pairs = list(zip(band.steps, band.estimates, strict=True))
    upper = [axes.at(step, estimate.high) for step, estimate in pairs]
    lower = [axes.at(step, estimate.low) for step, estimate in pairs]
    if len(pairs) > 1:
        draw.polygon([*upper, *reversed(lower)], fill=f"{colour}30")
        draw.line([axes.at(step, estimate.value) for step, estimate in pairs], colour, 3 * FINE, joint="curve")
    else:
        ((step, estimate),) = pairs
        draw.line([*lower, *upper], colour, 2 * FINE)
        x, y = axes.at(step, estimate.value)
        draw.ellipse([x - 6 * FINE, y - 6 * FINE, x + 6 * FINE, y + 6 * FINE], fill=colour)


def axes_of(bands: Mapping[str, Band], threshold: float | None) -> Axes:
    """Axes that show the middle of what there is: the worst twentieth of the values may lie outside."""
    values = sorted(estimate.value for band in bands.values() for estimate in band.estimates)
    shown = [values[len(values) // 20], values[-1], *([] if threshold is None else [threshold])]
    low, high = min(shown), max(shown)
    margin = 0.05 * (high - low) or 1.0
    return Axes(max(band.steps[-1] for band in bands.values()) or 1, low - margin, high + margin, LINE * len(bands))


def ticks(low: float, high: float) -> list[float]:
    """About five round numbers between two."""
    unit = 10.0 ** math.floor(math.log10((high - low) / 5))
    unit *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * unit) <= 6)
    return [unit * i for i in range(math.ceil(low / unit), math.floor(high / unit) + 1)]
