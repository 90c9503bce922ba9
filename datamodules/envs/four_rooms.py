"""Four rooms joined by four hallways: the grid world on which options are compared with flat policies."""

from collections.abc import Sequence
from itertools import permutations

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec, State
from datamodules.env_interface.cell_pictures import render_plan

PLAN = """
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

CELLS = [(row, column) for row, line in enumerate(PLAN) for column, mark in enumerate(line) if mark == " "]
"""Row and column of the 104 free cells, in the order of their numbers; 25, 51, 62 and 88 are the hallways."""

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Up, right, down, left."""

MIDDLES = tuple(CELLS.index(place) for place in ((3, 3), (3, 9), (9, 3), (9, 9)))
"""The cells in the middle of room 0 (upper left), 1 (upper right), 2 (lower left) and 3 (lower right)."""

EVERY_DELIVERY = tuple(permutations(range(len(MIDDLES)), 2))


class Rooms:
    """Base class of `FourRooms` and `FetchAndDeliver`: an agent that walks in four rooms.

    Actions: 0 up, 1 right, 2 down, 3 left; a move into a wall has no effect. With probability `slip` the agent moves to
    a uniformly drawn free neighbouring cell instead. An episode reports `success`.

    Args:
        shown: length of an observation.
        slip: probability of a random move, in [0, 1].
        time_limit: steps after which an episode is truncated.
    """

    episode_stat_keys = ("success",)
    obs_bounds = (0.0, 1.0)

    def __init__(self, shown: int, slip: float, time_limit: int) -> None:
        name = type(self).__name__
        if not 0 <= slip <= 1:
            raise ConfigurationError(f"{name} has slip {slip}; choose a probability from 0 to 1.")
        if time_limit < 1:
            raise ConfigurationError(f"{name} has time_limit {time_limit}; choose at least 1 step.")
        self.slip, self.time_limit, self.min_truncation_step = slip, time_limit, time_limit
        self.spaces = SpaceSpec(
            obs_shape=(shown,),
            obs_dtype="float32",
            action_type="discrete",
            action_sizes=[len(MOVES)],
            action_low=[],
            action_high=[],
            action_start=[0],
            num_agents=1,
        )
        self._tables: dict[torch.device, dict[str, Tensor]] = {}
        self._host = _tables()

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
        """Render one row: `rgb_array`, uint8 `[312, 312, 3]`, or `ansi`, one line of text per row of the plan.

        Walls are dark, the places of `marks` coloured, and the agent (`@`) is blue.
        """
        lines = [list(line) for line in PLAN]
        for cell, mark in [*self.marks(state, row).items(), (int(state["cell"][row]), "@")]:
            lines[CELLS[cell][0]][CELLS[cell][1]] = mark
        return render_plan(lines, mode)

    def marks(self, state: State, row: int) -> dict[int, str]:
        """Return the marks of cells to draw: `G` for a goal, `I` for an item."""
        raise NotImplementedError

    def _table(self, name: str, device: torch.device) -> Tensor:
        if device not in self._tables:
            self._tables[device] = {key: table.to(device, copy=True) for key, table in self._host.items()}
        return self._tables[device][name]


class FourRooms(Rooms):
    """Navigation to a goal cell as a `TorchFuncEnv`; reward 1 at the goal, which terminates the episode.

    The agent starts in any cell but the goal. Observation: the cell, one-hot, float32 `[104]`, without the goal. See
    `Rooms` for its moves.

    Args:
        goal: number of the goal cell, 0 to 103 (see `CELLS`).
        slip: probability of a random move, in [0, 1].
        time_limit: steps after which an episode is truncated.

    Raises: ConfigurationError if an argument is out of range.

    Source: Sutton, Precup and Singh 1999, doi:10.1016/S0004-3702(99)00052-1, section 4, as in Bacon, Harb and Precup
    2017, arXiv:1609.05140, section 5.1, where the goal is the hallway 62 until it moves.
    """

    noise_size = 3

    def __init__(self, goal: int = 62, slip: float = 1 / 3, time_limit: int = 500) -> None:
        super().__init__(len(CELLS), slip, time_limit)
        self.move_goal_(goal)

    def move_goal_(self, goal: int) -> None:
        """Move the goal from the next step on, on whatever device these environments run.

        Raises: ConfigurationError if there is no such cell.
        """
        if not 0 <= goal < len(CELLS):
            raise ConfigurationError(f"FourRooms has no cell {goal} for its goal; choose from 0 to {len(CELLS) - 1}.")
        for tables in (self._host, *self._tables.values()):
            tables["goal"].fill_(goal)

    def initial(self, noise: Tensor) -> State:
        """Return initial states from uniforms `[B, 3]`, the first of which draws the cell."""
        rank = (noise[:, 0] * (len(CELLS) - 1)).long()
        cell = rank + (rank >= self._table("goal", noise.device))
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
        """Return the cell, one-hot, `[B, 104]`."""
        return F.one_hot(state["cell"], len(CELLS)).float()


class FetchAndDeliver(Rooms):
    """Transport of an item from the middle of one room to that of another, as a `TorchFuncEnv`.

    Reward 1 on delivery, which terminates the episode; none for the item, which is picked up by entering its cell. The
    agent starts in any cell. Observation, float32 `[113]`: the cell, the item's room and its target room, each one-hot,
    and whether the item is carried. See `Rooms` for the moves.

    Args:
        deliveries: pairs of rooms, from and to, from which each episode draws one; all twelve by default.
        slip: probability of a random move, in [0, 1].
        time_limit: steps after which an episode is truncated.

    Raises: ConfigurationError if an argument is out of range.
    """

    noise_size = 4

    def __init__(
        self,
        deliveries: Sequence[Sequence[int]] = EVERY_DELIVERY,
        slip: float = 1 / 3,
        time_limit: int = 500,
    ) -> None:
        super().__init__(len(CELLS) + 2 * len(MIDDLES) + 1, slip, time_limit)
        wrong = [list(pair) for pair in deliveries if tuple(pair) not in EVERY_DELIVERY]
        if wrong or not deliveries:
            raise ConfigurationError(
                f"FetchAndDeliver has deliveries {wrong}; give pairs of two different rooms from 0 to 3, like [0, 3]."
            )
        self._host |= {"deliveries": torch.tensor([list(pair) for pair in deliveries]), "middle": torch.tensor(MIDDLES)}

    def initial(self, noise: Tensor) -> State:
        """Return initial states from uniforms `[B, 4]`: the first draws the cell, the last the delivery."""
        deliveries = self._table("deliveries", noise.device)
        origin, target = deliveries[(noise[:, 3] * len(deliveries)).long()].unbind(1)
        cell = (noise[:, 0] * len(CELLS)).long()
        no = torch.zeros_like(cell, dtype=torch.bool)
        where = {"cell": cell, "origin": origin, "target": target, "step": torch.zeros_like(cell)}
        return where | {"carries": no, "success": no.clone()}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Step with actions `[B]`, with the first three of the uniforms `[B, 4]` for `walk`."""
        cell, step = self.walk(state["cell"], action, noise), state["step"] + 1
        middle = self._table("middle", cell.device)
        success = state["carries"] & (cell == middle[state["target"]])
        carries = state["carries"] | (cell == middle[state["origin"]])
        state = state | {"cell": cell, "step": step, "carries": carries, "success": success}
        return state, success.float(), success, step >= self.time_limit

    def marks(self, state: State, row: int) -> dict[int, str]:
        """Mark the target, and the item until it is carried."""
        target, origin = (MIDDLES[int(state[name][row])] for name in ("target", "origin"))
        return {target: "G"} | ({} if state["carries"][row] else {origin: "I"})

    def observation(self, state: State) -> Tensor:
        """Return the cell, the item's room, its target room, and whether it is carried, `[B, 113]`."""
        rooms = [F.one_hot(state[name], len(MIDDLES)) for name in ("origin", "target")]
        return torch.cat([F.one_hot(state["cell"], len(CELLS)), *rooms, state["carries"].unsqueeze(1)], 1).float()


def _tables() -> dict[str, Tensor]:
    """Return goal, cell after each move `[104, 4]`, free neighbours `[104, 4]` and their number `[104]`."""
    number = {place: index for index, place in enumerate(CELLS)}
    after = [
        [number.get((row + down, column + right), index) for down, right in MOVES]
        for (row, column), index in number.items()
    ]
    free = [[neighbour for neighbour in row if neighbour != index] for index, row in enumerate(after)]
    around = [row + [row[0]] * (len(MOVES) - len(row)) for row in free]
    ways = torch.tensor([len(row) for row in free])
    return {"goal": torch.tensor(0), "after": torch.tensor(after), "around": torch.tensor(around), "ways": ways}
