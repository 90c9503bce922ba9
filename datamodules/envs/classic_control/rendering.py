"""Pictures of line segments, as images and as text."""

from typing import NamedTuple

import torch
from torch import Tensor

ASPECT = 1.5
"""Width of a picture whose height is 1; the origin is at its lower left corner."""

PIXELS = 200
LINES, LETTERS = 16, 48
COLOURS = {"#": (200, 205, 215), "=": (90, 110, 150), "o": (240, 200, 90), "|": (210, 120, 90), ">": (76, 160, 92)}
BACKGROUND = (24, 26, 32)


class Segment(NamedTuple):
    """Line from (x0, y0) to (x1, y1) of a width, all as parts of the picture's height.

    sign: its letter in a text, which also selects its colour in `COLOURS`.
    """

    x0: float
    y0: float
    x1: float
    y1: float
    width: float
    sign: str


def rgb_array(segments: list[Segment]) -> Tensor:
    """Draw segments, later ones on top: uint8 `[200, 300, 3]`."""
    palette = torch.tensor([BACKGROUND, *(COLOURS[segment.sign] for segment in segments)], dtype=torch.uint8)
    return palette[topmost(segments, PIXELS, int(PIXELS * ASPECT))]


def text(segments: list[Segment]) -> str:
    """Draw segments with their letters, 16 lines of 48."""
    signs = " " + "".join(segment.sign for segment in segments)
    return "\n".join("".join(signs[number] for number in line) for line in topmost(segments, LINES, LETTERS).tolist())


def topmost(segments: list[Segment], lines: int, columns: int) -> Tensor:
    """Return which segment is on top in each cell, counted from 1, and 0 for none, int64 `[lines, columns]`."""
    y = (lines - torch.arange(lines) - 0.5)[:, None] / lines
    x = (torch.arange(columns) + 0.5) * ASPECT / columns
    top = torch.zeros(lines, columns, dtype=torch.int64)
    for number, segment in enumerate(segments, start=1):
        across, up = segment.x1 - segment.x0, segment.y1 - segment.y0
        length = max(across**2 + up**2, 1e-12)
        along = (((x - segment.x0) * across + (y - segment.y0) * up) / length).clamp(0, 1)
        distance = torch.hypot(x - segment.x0 - along * across, y - segment.y0 - along * up)
        reach = max(segment.width / 2, 0.5 / lines)
        top = torch.where(distance <= reach, number, top)
    return top
