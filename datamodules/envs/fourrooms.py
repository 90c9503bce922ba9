"""Four rooms joined by four hallways: the grid world on which options are told from flat policies."""

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.types import Spaces, State, UsageError

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


class FourRooms:
    """A walk to a goal cell as a `TensorEnv`; reward 1 on arrival, which terminates the episode.

    Actions: 0 up, 1 right, 2 down, 3 left; into a wall, the walker stays. With probability `slip` it moves to a free
    neighbouring cell instead, all equally likely. It starts in any cell but the goal. Observation: the cell, one-hot,
    float32 `[104]`; the goal is not shown. An episode reports `success`, whether it arrived.

    Args:
        goal: number of the goal cell, 0 to 103 (see `CELLS`).
        slip: probability that a step goes astray, in [0, 1].
        time_limit: steps after which an episode is truncated.

    Raises: UsageError if an argument is out of range.

    Source: Sutton, Precup and Singh 1999, doi:10.1016/S0004-3702(99)00052-1, section 4, as Bacon, Harb and Precup 2017,
    arXiv:1609.05140, section 5.1, use it: there the goal is the hallway 62, until it moves.
    """

    noise_size = 3
    episode_keys = ("success",)
    obs_bounds = (0.0, 1.0)

    def __init__(self, goal: int = 62, slip: float = 1 / 3, time_limit: int = 500) -> None:
        if not 0 <= slip <= 1:
            raise UsageError(f"FourRooms has slip {slip}; choose a probability from 0 to 1.")
        if time_limit < 1:
            raise UsageError(f"FourRooms has time_limit {time_limit}; choose at least 1 step.")
        self.slip, self.time_limit, self.shortest_truncation = slip, time_limit, time_limit
        self.spaces = Spaces(
            obs_shape=(len(CELLS),),
            obs_dtype="float32",
            action_kind="discrete",
            action_sizes=[len(MOVES)],
            action_low=[],
            action_high=[],
            action_start=[0],
            agents=1,
        )
        self._tables: dict[torch.device, dict[str, Tensor]] = {}
        self._host = _tables()
        self.move_goal_(goal)

    def move_goal_(self, goal: int) -> None:
        """Put the goal elsewhere from the next step on, wherever these environments run.

        Raises: UsageError if there is no such cell.
        """
        if not 0 <= goal < len(CELLS):
            raise UsageError(f"FourRooms has no cell {goal} for its goal; choose from 0 to {len(CELLS) - 1}.")
        for tables in (self._host, *self._tables.values()):
            tables["goal"].fill_(goal)

    def initial(self, noise: Tensor) -> State:
        """First states from uniforms `[B, 3]`, of which the first places the walker."""
        rank = (noise[:, 0] * (len(CELLS) - 1)).long()
        cell = rank + (rank >= self._table("goal", noise.device))
        return {"cell": cell, "step": torch.zeros_like(cell), "success": torch.zeros_like(cell, dtype=torch.bool)}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """One step for actions `[B]`; of the uniforms `[B, 3]` the last two say whether it goes astray, and where."""
        device, cell = action.device, state["cell"]
        meant = self._table("after", device)[cell, action]
        way = (noise[:, 2] * self._table("ways", device)[cell]).long()
        astray = self._table("around", device)[cell, way]
        after = torch.where(noise[:, 1] < self.slip, astray, meant)
        success, step = after == self._table("goal", device), state["step"] + 1
        return {"cell": after, "step": step, "success": success}, success.float(), success, step >= self.time_limit

    def observation(self, state: State) -> Tensor:
        """The cell, one-hot, `[B, 104]`."""
        return F.one_hot(state["cell"], len(CELLS)).float()

    def info(self, state: State) -> dict[str, Tensor]:
        """Whether the walker stands on the goal, `[B]`."""
        return {"success": state["success"].float()}

    def _table(self, name: str, device: torch.device) -> Tensor:
        if device not in self._tables:
            self._tables[device] = {key: table.to(device, copy=True) for key, table in self._host.items()}
        return self._tables[device][name]


def _tables() -> dict[str, Tensor]:
    """The goal, the cell after each move `[104, 4]`, the free neighbours `[104, 4]` and how many there are `[104]`."""
    number = {place: index for index, place in enumerate(CELLS)}
    after = [
        [number.get((row + down, column + right), index) for down, right in MOVES]
        for (row, column), index in number.items()
    ]
    free = [[neighbour for neighbour in row if neighbour != index] for index, row in enumerate(after)]
    around = [row + [row[0]] * (len(MOVES) - len(row)) for row in free]
    ways = torch.tensor([len(row) for row in free])
    return {"goal": torch.tensor(0), "after": torch.tensor(after), "around": torch.tensor(around), "ways": ways}
