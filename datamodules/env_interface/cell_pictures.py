"""Pictures of worlds that consist of cells: squares of pixels, and plans of characters as text or picture."""

from collections.abc import Sequence

import torch
from torch import Tensor

PLAN_COLOURS = {
    "#": (44, 48, 56),
    " ": (244, 244, 240),
    "G": (0, 158, 115),
    "I": (230, 159, 0),
    "M": (204, 121, 167),
    "@": (0, 114, 178),
}
"""Colours of the characters of a plan: wall, free cell, goal, item, monster and agent."""

PLAN_PIXELS = 24
"""Side of a cell in the picture of a plan."""


def enlarge(picture: Tensor, pixels: int) -> Tensor:
    """Return a picture `[pixels H, pixels W, 3]` in which every pixel of `[H, W, 3]` is a square."""
    return picture.repeat_interleave(pixels, 0).repeat_interleave(pixels, 1)


def render_plan(lines: Sequence[Sequence[str]], mode: str) -> Tensor | str:
    """Render a plan of characters, H lines of W: `rgb_array`, uint8 `[24 H, 24 W, 3]`, or `ansi`, H lines of text.

    Args:
        lines: characters of `PLAN_COLOURS`.
    """
    if mode == "ansi":
        return "\n".join("".join(line) for line in lines)
    colours = torch.tensor([[PLAN_COLOURS[sign] for sign in line] for line in lines], dtype=torch.uint8)
    return enlarge(colours, PLAN_PIXELS)
