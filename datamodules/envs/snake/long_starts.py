"""Initial states with long snakes, which lie on random Hamiltonian cycles of the board (`LongStarts`)."""

from random import Random

import torch
from torch import Tensor

from datamodules.core.types import State
from datamodules.env_interface.device_constants import DeviceConstants
from datamodules.envs.snake.observations import WALL, BoardTables

NUM_CYCLES = 64
STEPS = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Change of row and column by direction: up, right, down, left."""

QUADRANTS = {(0, 0): 0, (0, 1): 1, (1, 1): 2, (1, 0): 3}
"""By row and column of a cell in its block: the direction in which a clockwise walk may leave the block."""

Edge = tuple[tuple[int, int], int]


class LongStarts:
    """Initial states of snakes of random lengths, each on a part of one of `NUM_CYCLES` Hamiltonian cycles.

    Length, cycle and the head's place on it are uniform, as is the food's cell among the free ones. A snake that
    follows the cycle fills the board, so that no initial state is lost.

    Args:
        dim: cells along one side; even, since a board with an odd number of cells has no such cycle.
        shortest, longest: range of the lengths.
        share: share of the states that are such; the others are ordinary.

    A mark is `4 * place + exit` of a cell: its place on the cycle, and the direction to the next. So the content of the
    board that `datamodules.envs.snake.env` describes is the mark less a number per row, also of free cells, where it is
    less than `now`; places ahead of the head count from one round before.
    """

    def __init__(self, dim: int, shortest: int, longest: int, share: float):
        random, cells = Random(0), dim**2
        with torch.device("cpu"):
            cycle = torch.tensor([hamiltonian_cycle(dim, random) for _ in range(NUM_CYCLES)])
            onward = torch.tensor([row * dim + column for row, column in STEPS])
            exits = (cycle.roll(-1, 1) - cycle).unsqueeze(-1).eq(onward).int().argmax(-1)
            marks = torch.zeros_like(cycle).scatter(1, cycle, 4 * torch.arange(cells) + exits).int()
            ranges = torch.tensor([longest - shortest + 1, NUM_CYCLES, cells]).float()
        self.shortest, self.share = shortest, share
        self.constants = DeviceConstants(cycle, marks, ranges)

    def initial(self, ordinary: State, noise: Tensor, tables: BoardTables) -> State:
        """Return the ordinary states, a share of them replaced, from uniforms `[B, 5]`: those of `long`, and which."""
        long, chosen = self.long(noise[:, :4], tables), noise[:, 4] < self.share
        ordinary = {**ordinary, "start_length": ordinary["length"]}
        return {
            name: torch.where(chosen.view(-1, *[1] * (leaf.dim() - 1)), long[name], leaf)
            for name, leaf in ordinary.items()
        }

    def long(self, noise: Tensor, tables: BoardTables) -> State:
        """Return initial states with long snakes from uniforms `[B, 4]`: length, cycle, head, food."""
        cycle, all_marks, ranges = self.constants.on(noise.device)
        length, which, place = (noise[:, :3] * ranges).long().unbind(1)
        length, cells = length + self.shortest, cycle.shape[1]
        rank = (noise[:, 3] * tables.free.index_select(0, length)).long()
        places = torch.stack((place - 1, place, place - length + 1, place + 1 + rank), 1) % cells
        before, head, tail, food = cycle.take(places + (which * cells)[:, None]).unbind(1)
        marks, four_places, four_lengths = all_marks.index_select(0, which), 4 * place, 4 * length
        ahead = marks >= (four_places + 4).int()[:, None]
        body = torch.add(marks + (four_lengths - four_places).int()[:, None], ahead, alpha=-4 * cells)
        body = torch.where(body >= four_lengths.int()[:, None], WALL, body)
        return {
            "board": torch.cat((body, tables.edge[cells:].expand(len(body), 2)), 1),
            "head": head,
            "tail": tail,
            "food": food,
            "direction": marks.gather(1, before[:, None]).squeeze(1).long() & 3,
            "length": length,
            "now": torch.full_like(head, 4),
            "deadline": torch.add(tables.starvation_limit.index_select(0, length), length, alpha=4),
            "start_length": length,
        }


def hamiltonian_cycle(dim: int, random: Random) -> list[int]:
    """Return the cells of a random Hamiltonian cycle of a board with even `dim`, in their order.

    It is a walk around a random spanning tree of the blocks of 2 x 2 cells, clockwise or anticlockwise.
    """
    edges, row, column, path = spanning_tree(dim // 2, random), 0, 0, []
    for _ in range(dim**2):
        path.append(row * dim + column)
        block, outward = (row // 2, column // 2), QUADRANTS[row % 2, column % 2]
        down, right = STEPS[outward if (block, outward) in edges else (outward + 1) % 4]
        row, column = row + down, column + right
    return path[::-1] if random.random() < 0.5 else path


def spanning_tree(side: int, random: Random) -> set[Edge]:
    """Return the edges of a random spanning tree of `side` x `side` blocks: block and direction, from both ends."""
    reached, edges, candidates = {(0, 0)}, set[Edge](), [((0, 0), 1), ((0, 0), 2)]
    while candidates:
        (row, column), direction = candidates.pop(random.randrange(len(candidates)))
        block = (row + STEPS[direction][0], column + STEPS[direction][1])
        if block not in reached and min(block) >= 0 and max(block) < side:
            reached.add(block)
            edges |= {((row, column), direction), (block, (direction + 2) % 4)}
            candidates += [(block, onward) for onward in range(4)]
    return edges
