"""Panels that show a plane: arrows, dots and paths, drawn with Pillow."""

import io
from collections.abc import Sequence

from PIL import Image, ImageDraw
from torch import Tensor

SIDE, FINE = 360, 2  # pixels of a panel; drawn so many times larger, then reduced: smooth lines
PAPER, INK, SEEN, PREDICTED = "#ffffff", "#1f2328", "#e69f00", "#0072b2"
ARROWS = 15
"""Arrows along each side of a panel."""

FRAME_MS, REST_MS = 100, 3_000
"""How long a moving picture shows each frame, and the last."""


class Canvas:
    """A panel of the plane between two corners.

    Args:
        low, high: the corners `[2]`.
    """

    def __init__(self, low: Tensor, high: Tensor):
        self.low, self.high = low.cpu(), high.cpu()
        self.image = Image.new("RGB", (SIDE * FINE, SIDE * FINE), PAPER)
        self.draw = ImageDraw.Draw(self.image)
        self.draw.rectangle([0, 0, SIDE * FINE - 1, SIDE * FINE - 1], outline=INK)

    def at(self, points: Tensor) -> list[tuple[float, float]]:
        """Pixels of points `[M, 2]`; the second dimension points up."""
        share = (points.cpu() - self.low) / (self.high - self.low)
        return [(SIDE * FINE * x, SIDE * FINE * (1 - y)) for x, y in share.clamp(-9, 10).tolist()]

    def speed(self, field: Tensor) -> float:
        """What nine in ten arrows of a field `[M, 2]` do not exceed, in panels a second."""
        return float((field.cpu() / (self.high - self.low)).norm(dim=1).quantile(0.9))

    def arrows(self, points: Tensor, field: Tensor, speed: float) -> None:
        """Arrows from points; one of `speed` is a space between points long, and none is longer."""
        length = field.cpu() / (self.high - self.low) / max(speed, 1e-9)
        length = length / length.norm(dim=1, keepdim=True).clamp(min=1)
        ends = points.cpu() + length * (self.high - self.low) / ARROWS
        for start, end in zip(self.at(points), self.at(ends), strict=True):
            self.draw.line([start, end], INK, FINE)
            self.draw.ellipse([start[0] - FINE, start[1] - FINE, start[0] + FINE, start[1] + FINE], fill=INK)

    def dots(self, points: Tensor, colour: str = SEEN) -> None:
        """A small dot at every point."""
        for x, y in self.at(points):
            self.draw.ellipse([x - FINE, y - FINE, x + FINE, y + FINE], fill=colour)

    def line(self, points: Tensor, colour: str) -> None:
        """A path, with a dot where it begins."""
        pixels = self.at(points)
        self.draw.line(pixels, colour, 2 * FINE, joint="curve")
        x, y = pixels[0]
        self.draw.ellipse([x - 3 * FINE, y - 3 * FINE, x + 3 * FINE, y + 3 * FINE], fill=colour)

    def title(self, words: str) -> None:
        """Words in the upper left corner."""
        self.draw.text((5 * FINE, 3 * FINE), words, INK, font_size=12 * FINE)


def tiled(rows: Sequence[Sequence[Canvas]]) -> Image.Image:
    """Panels in rows of one length."""
    picture = Image.new("RGB", (SIDE * len(rows[0]), SIDE * len(rows)), PAPER)
    for down, row in enumerate(rows):
        for right, canvas in enumerate(row):
            picture.paste(canvas.image.reduce(FINE), (SIDE * right, SIDE * down))
    return picture


def animated(frames: Sequence[Image.Image]) -> bytes:
    """A GIF that shows frames again and again, and rests on the last."""
    first, *others = [frame.quantize(32, Image.Quantize.FASTOCTREE) for frame in frames]
    durations = [FRAME_MS] * len(others) + [REST_MS]
    file = io.BytesIO()
    first.save(file, "GIF", save_all=True, append_images=others, duration=durations, loop=0)
    return file.getvalue()
