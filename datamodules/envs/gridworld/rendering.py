"""Pictures and text of the grid world."""

import torch
from torch import Tensor

from datamodules.env_interface.cell_pictures import enlarge

CELL_PIXELS = 16
SIGNS = ".#mga"
"""Signs of a free cell, a wall, a mine, a generator and an altar; agents are digits, the last one of their number."""

PALETTE = torch.tensor(
    [(28, 30, 36), (96, 100, 110), (170, 110, 70), (90, 150, 220), (220, 80, 120)], dtype=torch.uint8
)
"""Colours of the kinds of cells."""

AGENT_PALETTE = torch.tensor([(240, 200, 90), (120, 200, 120), (200, 140, 220), (240, 240, 240)], dtype=torch.uint8)
"""Colours of the agents, repeated after the last one."""


def rgb_array(kinds: Tensor, positions: Tensor, cut: int) -> Tensor:
    """Return a picture, uint8 `[16 H, 16 W, 3]`.

    Args:
        kinds: kinds of all cells `[side, side]`.   positions: cells of the agents `[A]`.
        cut: cells that are left out on every side.
    """
    picture = PALETTE[kinds].flatten(0, 1)
    picture[positions] = AGENT_PALETTE[torch.arange(len(positions)) % len(AGENT_PALETTE)]
    shown = _inner(picture.view(*kinds.shape, 3), cut)
    return enlarge(shown, CELL_PIXELS)


def ansi(kinds: Tensor, positions: Tensor, cut: int) -> str:
    """Return one line of text per row of cells; arguments as `rgb_array`."""
    numbers = torch.full((kinds.numel(),), -1)
    numbers[positions] = torch.arange(len(positions)) % 10
    lines = zip(_inner(kinds, cut).tolist(), _inner(numbers.view_as(kinds), cut).tolist(), strict=True)
    return "\n".join(
        "".join(SIGNS[kind] if agent < 0 else str(agent) for kind, agent in zip(*line, strict=True)) for line in lines
    )


def _inner(cells: Tensor, cut: int) -> Tensor:
    return cells[cut : len(cells) - cut, cut : len(cells) - cut]
