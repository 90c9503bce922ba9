"""The board of Snake: its constants, and how a state is shown to a network and to people.

The state is described in `datamodules.envs.snake`. Constants come from tables rather than divisions, so that every
device and compiler shows the same bits.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.types import State

WALL = 2**31 - 1
RIGHT = 1
CELL_PIXELS = 16


class Tables(NamedTuple):
    """Constants on one device; directions are ordered up, right, down, left, `P` is `(dim + 2) ** 2` cells.

    offset: `[4]`, what a move adds to a cell.   turn: `[16]`, the direction after 4 * direction + action.
    exit, exit_bits: `[4]`, what a move adds to a stamp to name its exit; a scalar, the bits that hold it.
    cell: `[dim * dim]`, the cells inside the walls, row by row.   compass: `[P, 4]`, (-y, x, y, -x) / dim of a cell.
    heading: `[4, 4]`, one-hot directions.   walls: `[P]`.
    strip: `[2 * P - 1]`, a young snake in an endless row with its head at P - 1; a window of it is a first board.
    share, per_cell, free, patience, on_length: `[dim * dim + 1]`, by length: length / dim^2, 1 / length, free cells,
        steps without food until truncation (on the clock, in quarter ticks), the reward's length term.
    full, on_food, on_death, on_step, on_closer, on_farther: scalars, the greatest length and rewards.
    """

    offset: Tensor
    turn: Tensor
    exit: Tensor
    exit_bits: Tensor
    cell: Tensor
    compass: Tensor
    heading: Tensor
    walls: Tensor
    strip: Tensor
    share: Tensor
    per_cell: Tensor
    free: Tensor
    patience: Tensor
    on_length: Tensor
    full: Tensor
    on_food: Tensor
    on_death: Tensor
    on_step: Tensor
    on_closer: Tensor
    on_farther: Tensor

    def to(self, device: torch.device) -> "Tables":
        """The same constants on another device."""
        return Tables(*(table.to(device) for table in self))


def patience(starvation: str | int, dim: int, length: int) -> int:
    """Steps until truncation for a snake of this length; "board" counts them from the episode's start."""
    if starvation == "length":
        return 100 + 10 * length
    return 2 * dim**2 if starvation == "board" else int(starvation)


def tables(
    dim: int, start_length: int, rewards: dict[str, float], starvation: str | int, relative_actions: bool
) -> Tables:
    """Constants of a game, on the host."""
    with torch.device("cpu"):
        width, lengths = dim + 2, torch.arange(dim**2 + 1)
        inside = torch.zeros(width, width, dtype=torch.bool)
        inside[1:-1, 1:-1] = True
        y, x = torch.meshgrid(torch.arange(-1, dim + 1) / dim, torch.arange(-1, dim + 1) / dim, indexing="ij")
        strip = torch.zeros(2 * width**2 - 1, dtype=torch.int32)
        strip[width**2 - start_length : width**2 - 1] = 4 * torch.arange(1, start_length) + RIGHT
        strip[width**2 - 1] = WALL
        return Tables(
            offset=torch.tensor([-width, 1, width, -1]),
            turn=turns(relative_actions),
            exit=torch.arange(-4, 0, dtype=torch.int32),
            exit_bits=torch.tensor(3, dtype=torch.int32),
            cell=inside.flatten().nonzero().squeeze(1),
            compass=torch.stack((-y, x, y, -x), -1).view(-1, 4),
            heading=torch.eye(4),
            walls=walls(inside),
            strip=strip,
            share=lengths / dim**2,
            per_cell=1 / lengths.clamp(min=1),
            free=(dim**2 - lengths).float(),
            patience=torch.tensor([4 * patience(starvation, dim, int(length)) for length in lengths]).int(),
            on_length=lengths * rewards["length"],
            full=torch.tensor(dim**2, dtype=torch.int32),
            on_food=torch.tensor(rewards["food"] + rewards["step"] + rewards["survive"]),
            on_death=torch.tensor(rewards["death"] + rewards["step"]),
            on_step=torch.tensor(rewards["step"] + rewards["survive"]),
            on_closer=torch.tensor(rewards["closer"]),
            on_farther=torch.tensor(rewards["farther"]),
        )


def walls(inside: Tensor) -> Tensor:
    """The border of the board, `[P]`; the last corner stays free for the food that finds no other cell."""
    border = torch.where(inside, 0, WALL).int().flatten()
    border[-1] = 0
    return border


def turns(relative_actions: bool) -> Tensor:
    """The direction after each of 4 * direction + action, `[16]`."""
    direction, action = torch.arange(16) // 4, torch.arange(16) % 4
    if relative_actions:
        return (direction + action - 1) % 4
    return torch.where((direction - action) % 4 == 2, direction, action)


def blocked(state: State, constants: Tables) -> Tensor:
    """Whether the cells above, right, below and left of the head are wall or body, bool `[B, 4]`."""
    neighbours = state["head"][:, None] + constants.offset
    return state["board"].gather(1, neighbours) >= state["now"][:, None]


def layers(state: State, constants: Tables) -> tuple[Tensor, Tensor, Tensor]:
    """Head, clock ticks until each cell becomes free (0 or less where it is), and food, `[B, dim * dim]` each."""
    ticks = (state["board"] - (state["now"] - 4)[:, None]) >> 2
    ticks = ticks.index_select(1, constants.cell)
    return constants.cell == state["head"][:, None], ticks, constants.cell == state["food"][:, None]


def planes(state: State, constants: Tables) -> Tensor:
    """Head, body by remaining life over length, and food, `[B, 3, dim, dim]` in [0, 1]."""
    head, ticks, food = layers(state, constants)
    life = (ticks * constants.per_cell.index_select(0, state["length"])[:, None]).clamp(0, 1)
    side = round(constants.cell.numel() ** 0.5)
    return torch.stack((head.float(), life, food.float()), 1).view(-1, 3, side, side)


def grid(state: State, constants: Tables) -> Tensor:
    """0 free, 1 body, 2 head, 3 food, float32 `[B, dim * dim]`."""
    head, ticks, food = layers(state, constants)
    return (ticks > 0).float() + head + food * 3.0


def features(state: State, constants: Tables) -> Tensor:
    """The nineteen numbers of the `features` observation, float32 `[B, 19]`."""
    head, tail, food = (constants.compass.index_select(0, state[name]) for name in ("head", "tail", "food"))
    toward = food - head
    direction = constants.heading.index_select(0, state["direction"])
    share = constants.share.index_select(0, state["length"])[:, None]
    danger, side = blocked(state, constants).float(), (toward > 0).float()
    return torch.cat((direction, danger, side, toward[:, 1:3], share, head[:, 1:3], tail[:, 1:3]), 1)


def ansi(board: Tensor, direction: int) -> str:
    """Text of a grid `[dim, dim]`: `.` free, `o` body, `*` food, the head an arrow; one line a board row."""
    signs = (".", "o", "^>v<"[direction], "*")
    return "\n".join("".join(signs[cell] for cell in row) for row in board.tolist())


def rgb_array(board: Tensor) -> Tensor:
    """Picture of a grid `[dim, dim]`: uint8 `[16 dim, 16 dim, 3]`."""
    palette = torch.tensor([[24, 26, 32], [76, 160, 92], [170, 230, 120], [226, 84, 72]], dtype=torch.uint8)
    picture = palette[board]
    return picture.repeat_interleave(CELL_PIXELS, 0).repeat_interleave(CELL_PIXELS, 1)
