"""RoomPlan: walls, rooms and doorways of a grid of rooms, and shortest paths to the doorways."""

from collections import deque
from collections.abc import Container
from functools import cached_property

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError

CLASSIC = """
#############
#     #     #
#     #     #
#           #
#     #     #
#     #     #
## ####     #
#     ### ###
#     #     #
#     #     #
#           #
#     #     #
#############
""".strip().splitlines()
"""The four rooms of Sutton, Precup and Singh 1999, doi:10.1016/S0004-3702(99)00052-1, figure 2."""

PITCH = 6
"""Distance of two parallel walls, in cells."""

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Up, right, down, left."""

OUTSIDE = -1
"""Number of a cell, room or doorway that does not exist."""

Place = tuple[int, int]


class RoomPlan:
    """Plan of `rooms` x `rooms` rooms, numbered row by row; cells are the free ones, numbered row by row.

    Two by two are the four rooms of the literature. More have 5 x 5 cells each, with a doorway in the middle of every
    wall between two rooms. A doorway belongs to no room.

    Args:
        rooms: number of rooms on a side.

    Attributes:
        lines: the plan, `#` for a wall.
        cells: row and column of every cell.
        room_of: room of every cell, -1 for a doorway.
        middles: cell in the middle of every room.

    Raises: ConfigurationError for less than 2 rooms on a side.
    """

    def __init__(self, rooms: int) -> None:
        if rooms < 2:
            raise ConfigurationError(f"rooms is {rooms}; choose at least 2 on a side, for four rooms.")
        self.rooms = rooms
        self.lines = CLASSIC if rooms == 2 else _regular(rooms)
        self.cells = [(y, x) for y, line in enumerate(self.lines) for x, mark in enumerate(line) if mark == " "]
        self.number = {place: index for index, place in enumerate(self.cells)}
        middle, every = PITCH // 2, range(rooms)
        self.middles = [self.number[PITCH * y + middle, PITCH * x + middle] for y in every for x in every]
        self.room_of = [OUTSIDE] * len(self.cells)
        inside = {cell for cell in range(len(self.cells)) if not self.is_doorway(cell)}
        for room, start in enumerate(self.middles):
            for cell in self._distances(start, inside):
                self.room_of[cell] = room

    def neighbour(self, cell: int, move: int) -> int:
        """Return the cell after a move, -1 if there is a wall."""
        (row, column), (down, right) = self.cells[cell], MOVES[move]
        return self.number.get((row + down, column + right), OUTSIDE)

    def is_doorway(self, cell: int) -> bool:
        """Return whether a cell has walls on two opposite sides."""
        blocked = [self.neighbour(cell, move) == OUTSIDE for move in range(4)]
        return (blocked[0] and blocked[2]) or (blocked[1] and blocked[3])

    @cached_property
    def doorways(self) -> list[list[int]]:
        """Return each room's doorways up, right, down and left; -1 where there is none."""
        found = [[OUTSIDE] * 4 for _ in self.middles]
        for cell in filter(self.is_doorway, range(len(self.cells))):
            for move in range(4):
                beyond = self.neighbour(cell, move)
                if beyond != OUTSIDE:
                    found[self.room_of[beyond]][(move + 2) % 4] = cell
        return found

    def room_towards(self, cell: int, move: int) -> int:
        """Return the cell's room; of a doorway the room in the direction of the move, else the one right or below."""
        if self.room_of[cell] != OUTSIDE:
            return self.room_of[cell]
        beyond = [self.neighbour(cell, side) for side in (move, 1, 2)]
        return self.room_of[next(each for each in beyond if each != OUTSIDE)]

    def path(self, move: int) -> Tensor:
        """Return the first move from every cell on a shortest path to its room's doorway in a direction, `[cells]`.

        int64; -1 where the room (`room_towards`) has no doorway in this direction.
        """
        distances = {
            room: self._distances(doorways[move], {cell for cell, its in enumerate(self.room_of) if its == room})
            for room, doorways in enumerate(self.doorways)
            if doorways[move] != OUTSIDE
        }
        rooms = [self.room_towards(cell, move) for cell in range(len(self.cells))]
        return torch.tensor([self._first_move(cell, distances.get(room, {})) for cell, room in enumerate(rooms)])

    def _first_move(self, cell: int, distances: dict[int, int]) -> int:
        """Return the move to the neighbour at the least distance; -1 where no distances are known."""
        beyond = [(self.neighbour(cell, move), move) for move in range(len(MOVES))]
        return min(((distances[each], move) for each, move in beyond if each in distances), default=(0, OUTSIDE))[1]

    def _distances(self, start: int, passable: Container[int]) -> dict[int, int]:
        """Return the steps from a cell to itself and to every cell that is reached over passable ones."""
        found, queue = {start: 0}, deque([start])
        while queue:
            cell = queue.popleft()
            for beyond in (self.neighbour(cell, move) for move in range(len(MOVES))):
                if beyond != OUTSIDE and beyond not in found and beyond in passable:
                    found[beyond] = found[cell] + 1
                    queue.append(beyond)
        return found


def _regular(rooms: int) -> list[str]:
    """Return the plan of rooms of equal size, with a doorway in the middle of every inner wall."""
    side, middle = PITCH * rooms + 1, PITCH // 2

    def mark(row: int, column: int) -> str:
        inner = 0 < row < side - 1 and 0 < column < side - 1
        on_wall = (row % PITCH == 0, column % PITCH == 0)
        doorway = inner and on_wall[0] != on_wall[1] and (row if on_wall[1] else column) % PITCH == middle
        return " " if doorway or not any(on_wall) else "#"

    return ["".join(mark(row, column) for column in range(side)) for row in range(side)]
