"""Navigation in n x n rooms: the grid world on which options are compared with flat policies."""

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import State, discrete_spaces
from datamodules.env_interface.cell_pictures import render_plan
from datamodules.envs.four_rooms.plan import MOVES, OUTSIDE, RoomPlan

CLASSIC_GOAL = 62
"""The hallway that is the goal in the literature's four rooms."""


class Rooms:
    """Base class of the environments in rooms: an agent that walks.

    Actions: 0 up, 1 right, 2 down, 3 left; a move into a wall has no effect. With probability `slip` the agent moves to
    a uniformly drawn free neighbouring cell instead. An episode reports `success`.

    Args:
        rooms: number of rooms on a side.
        extra: numbers of an observation beside the cell.
        slip: probability of a random move, in [0, 1].
        time_limit: steps after which an episode is truncated.
    """

    episode_stat_keys: tuple[str, ...] = ("success",)
    obs_bounds = (0.0, 1.0)

    def __init__(self, rooms: int, extra: int, slip: float, time_limit: int) -> None:
        name = type(self).__name__
        if not 0 <= slip <= 1:
            raise ConfigurationError(f"{name} has slip {slip}; choose a probability from 0 to 1.")
        if time_limit < 1:
            raise ConfigurationError(f"{name} has time_limit {time_limit}; choose at least 1 step.")
        self.plan = RoomPlan(rooms)
        self.num_cells = len(self.plan.cells)
        self.slip, self.time_limit, self.min_truncation_step = slip, time_limit, time_limit
        self.spaces = discrete_spaces((self.num_cells + extra,), "float32", len(MOVES))
        self._tables: dict[torch.device, dict[str, Tensor]] = {}
        self._host = _tables(self.plan)

    def walk(self, cell: Tensor, action: Tensor, noise: Tensor) -> Tensor:
        """Return the cells `[B]` after a step; the last two of the uniforms `[B, 3]` draw slip and direction."""
        device = action.device
        way = (noise[:, 2] * self._table("ways", device)[cell]).long()
        astray, meant = self._table("around", device)[cell, way], self._table("after", device)[cell, action]
        return torch.where(noise[:, 1] < self.slip, astray, meant)

    def info(self, state: State) -> dict[str, Tensor]:
        """Return whether the agent succeeded, `[B]`."""
        return {"success": state["success"].float()}

    def render(self, state: State, row: int, mode: str) -> Tensor | str:
        """Render one row: `rgb_array`, uint8 `[24 H, 24 W, 3]`, or `ansi`, one line of text per row of the plan.

        Walls are dark, the places of `marks` coloured, and the agent (`@`) is blue.
        """
        lines = [list(line) for line in self.plan.lines]
        for cell, mark in [*self.marks(state, row).items(), (int(state["cell"][row]), "@")]:
            lines[self.plan.cells[cell][0]][self.plan.cells[cell][1]] = mark
        return render_plan(lines, mode)

    def marks(self, state: State, row: int) -> dict[int, str]:
        """Return the marks of cells to draw: `G` for a goal, `I` for an item."""
        raise NotImplementedError

    def cell_observation(self, state: State) -> Tensor:
        """Return the cell, one-hot, `[B, cells]`."""
        return F.one_hot(state["cell"], self.num_cells).float()

    def _check_cell(self, cell: int, what: str) -> None:
        if not isinstance(cell, int) or not 0 <= cell < self.num_cells:
            raise ConfigurationError(
                f"{type(self).__name__} has no cell {cell} for its {what}; choose from 0 to {self.num_cells - 1}."
            )

    def _table(self, name: str, device: torch.device) -> Tensor:
        if device not in self._tables:
            self._tables[device] = {key: table.to(device, copy=True) for key, table in self._host.items()}
        return self._tables[device][name]

    def _fill_table(self, name: str, value: Tensor) -> None:
        for tables in (self._host, *self._tables.values()):
            tables[name].copy_(value)


class FourRooms(Rooms):
    """Navigation to a goal cell as a `TorchFuncEnv`; reward 1 at the goal, which terminates the episode.

    Observation: the cell, one-hot, float32 `[cells]`, without the goal. See `Rooms` for the moves, and
    `datamodules.envs.four_rooms.plan.RoomPlan` for the numbers of the cells: 104 in the four rooms of the literature,
    with the hallways 25, 51, 62 and 88; 424 in 4 x 4 rooms.

    Args:
        goal: number of the goal cell; null: 62 in four rooms, else the middle of the last room, in the lower right.
        slip: probability of a random move, in [0, 1].
        time_limit: steps after which an episode is truncated.
        rooms: number of rooms on a side.
        start: number of the cell where an episode begins; null: any cell but the goal.

    Raises: ConfigurationError if an argument is out of range.

    Source: Sutton, Precup and Singh 1999, doi:10.1016/S0004-3702(99)00052-1, section 4, as in Bacon, Harb and Precup
    2017, arXiv:1609.05140, section 5.1, where the goal is the hallway 62 until it moves.
    """

    noise_size = 3

    def __init__(
        self,
        goal: int | None = None,
        slip: float = 1 / 3,
        time_limit: int = 500,
        rooms: int = 2,
        start: int | None = None,
    ) -> None:
        super().__init__(rooms, 0, slip, time_limit)
        self.start = start
        if start is not None:
            self._check_cell(start, "start")
        self._host["goal"] = torch.tensor(0)
        self.move_goal_((CLASSIC_GOAL if rooms == 2 else self.plan.middles[-1]) if goal is None else goal)

    def move_goal_(self, goal: int) -> None:
        """Move the goal from the next step on, on whatever device these environments run.

        Raises: ConfigurationError if there is no such cell, or episodes start there.
        """
        self._check_cell(goal, "goal")
        if goal == self.start:
            raise ConfigurationError(f"FourRooms starts in its goal, cell {goal}; choose another goal or start.")
        self._fill_table("goal", torch.tensor(goal))

    def initial(self, noise: Tensor) -> State:
        """Return initial states from uniforms `[B, 3]`, the first of which draws the cell."""
        rank = (noise[:, 0] * (self.num_cells - 1)).long()
        anywhere = rank + (rank >= self._table("goal", noise.device))
        cell = anywhere if self.start is None else torch.full_like(rank, self.start)
        return {"cell": cell, "step": torch.zeros_like(cell), "success": torch.zeros_like(cell, dtype=torch.bool)}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Step with actions `[B]` and the uniforms `[B, 3]` of `walk`."""
        cell, step = self.walk(state["cell"], action, noise), state["step"] + 1
        success = cell == self._table("goal", cell.device)
        return {"cell": cell, "step": step, "success": success}, success.float(), success, step >= self.time_limit

    def marks(self, state: State, row: int) -> dict[int, str]:
        """Mark the goal."""
        return {int(self._host["goal"]): "G"}

    def observation(self, state: State) -> Tensor:
        """Return the cell, one-hot, `[B, cells]`."""
        return self.cell_observation(state)


def _tables(plan: RoomPlan) -> dict[str, Tensor]:
    """Return the cell after each move `[cells, 4]`, free neighbours `[cells, 4]` and their number `[cells]`."""
    moves = range(len(MOVES))
    beyond = [[plan.neighbour(cell, move) for move in moves] for cell in range(len(plan.cells))]
    after = [[cell if each == OUTSIDE else each for each in row] for cell, row in enumerate(beyond)]
    free = [[each for each in row if each != OUTSIDE] for row in beyond]
    around = [row + [row[0]] * (len(MOVES) - len(row)) for row in free]
    ways = torch.tensor([len(row) for row in free])
    return {"after": torch.tensor(after), "around": torch.tensor(around), "ways": ways}
