"""Horde: gather treasures and leave through the exit before the horde catches the agent."""

import math

import torch
from torch import Tensor

from datamodules.core.arguments import check_ranges
from datamodules.core.types import State, discrete_spaces
from datamodules.env_interface.cell_pictures import render_plan
from datamodules.env_interface.device_constants import DeviceConstants

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Up, right, down, left."""


class Horde:
    """A square room with treasures, an exit and a horde of monsters that chase the agent, as a `TorchFuncEnv`.

    The agent starts in the upper left cell. Entering a treasure's cell takes the treasure. Then each monster steps
    towards the agent with probability `chase`, along the longer of the two distances (the vertical one if they are
    equal), else it stays. A monster in the agent's cell catches the agent, which ends the episode with reward 0. The
    exit ends it with the share of the treasures that were taken as reward, in [0, 1]. An episode reports `success`
    (left with all treasures) and `caught`. The info has two rewards for options: `reward_gather`, 1 in a step that
    takes a treasure, and `reward_flee`, -1 in the step in which the agent is caught.

    Actions: 0 up, 1 right, 2 down, 3 left; a move into a wall has no effect. Observation, uint8
    `[3, 2 size - 1, 2 size - 1]`: planes of monsters, treasures and the exit, with the agent in the centre.

    Args:
        size: cells on a side.
        monsters: number of monsters; they start at least `size` moves from the agent.
        treasures: number of treasures; their cells and those of exit and monsters are drawn for each episode.
        chase: probability that a monster steps, in [0, 1]; at 1 it is as fast as the agent.
        time_limit: steps after which an episode is truncated.
        gather_reward: reward of the task for every treasure, besides that at the exit.

    Raises: ConfigurationError if an argument is out of range.
    """

    episode_stat_keys = ("success", "caught")
    obs_bounds = (0, 1)

    def __init__(
        self,
        size: int = 8,
        monsters: int = 2,
        treasures: int = 4,
        chase: float = 0.2,
        time_limit: int = 200,
        gather_reward: float = 0.0,
    ) -> None:
        counts = {"monsters": monsters, "treasures": treasures, "time_limit": time_limit}
        check_ranges(
            "Horde",
            ("size", size, isinstance(size, int) and size >= 4, "a whole number of at least 4"),
            *(
                (name, count, isinstance(count, int) and count >= 1, "a whole number of at least 1")
                for name, count in counts.items()
            ),
            ("monsters + treasures", monsters + treasures, monsters + treasures < size, f"less than size, {size}"),
            ("chase", chase, 0 <= chase <= 1, "a probability from 0 to 1"),
            ("gather_reward", gather_reward, math.isfinite(gather_reward), "a finite number"),
        )
        self.size, self.monsters, self.treasures, self.chase = size, monsters, treasures, chase
        self.gather_reward = gather_reward
        self.time_limit = self.min_truncation_step = time_limit
        self.cells = self.noise_size = size**2
        self.window = 2 * size - 1
        self.spaces = discrete_spaces((3, self.window, self.window), "uint8", len(MOVES))
        row, column = torch.arange(self.cells) // size, torch.arange(self.cells) % size
        near = row + column < size
        self.tables = DeviceConstants(torch.tensor(MOVES), near, torch.arange(self.cells))

    def initial(self, noise: Tensor) -> State:
        """Return initial states from uniforms `[B, cells]`: the largest lie on exit, treasures, then monsters."""
        _, near, cells = self.tables.on(noise.device)
        spots = noise.masked_fill(cells == 0, -1).topk(self.treasures + 1, 1).indices
        used = torch.zeros_like(noise, dtype=torch.bool).scatter(1, spots, True)
        treasures = used.scatter(1, spots[:, :1], False)
        monsters = noise.masked_fill(near | used, -1).topk(self.monsters, 1).indices
        zero = torch.zeros_like(monsters[:, 0])
        no = torch.zeros_like(zero, dtype=torch.bool)
        events = {"took": no, "caught": no.clone(), "success": no.clone()}
        places = {"cell": zero, "exit": spots[:, 0].clone(), "treasures": treasures, "monsters": monsters}
        return places | events | {"step": zero.clone()}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Step with actions `[B]`; the first uniforms of `[B, cells]` draw whether each monster steps."""
        moves, _, cells = self.tables.on(action.device)
        row, column = self._place(state["cell"])
        down, right = moves[action].unbind(-1)
        row, column = (row + down).clamp(0, self.size - 1), (column + right).clamp(0, self.size - 1)
        cell, step = row * self.size + column, state["step"] + 1
        entered = cells == cell.unsqueeze(1)
        took, treasures = (state["treasures"] & entered).any(1), state["treasures"] & ~entered
        after = self._chase(state["monsters"], row.unsqueeze(1), column.unsqueeze(1), noise)
        caught = ((state["monsters"] == cell.unsqueeze(1)) | (after == cell.unsqueeze(1))).any(1)
        left = (cell == state["exit"]) & ~caught
        share = 1 - treasures.sum(1) / self.treasures
        places = {"cell": cell, "exit": state["exit"], "treasures": treasures, "monsters": after}
        events = {"took": took, "caught": caught, "success": left & (share == 1)}
        reward = torch.where(left, share, 0.0) + self.gather_reward * took
        return places | events | {"step": step}, reward, caught | left, step >= self.time_limit

    def _place(self, cell: Tensor) -> tuple[Tensor, Tensor]:
        return torch.div(cell, self.size, rounding_mode="floor"), cell % self.size

    def _chase(self, monsters: Tensor, row: Tensor, column: Tensor, noise: Tensor) -> Tensor:
        """Return the cells of the monsters `[B, monsters]` after their steps towards the agent `[B, 1]`."""
        at_row, at_column = self._place(monsters)
        down, right = row - at_row, column - at_column
        vertical = down.abs() >= right.abs()
        step = torch.where(vertical, down.sign() * self.size, right.sign())
        return monsters + step * (noise[:, : self.monsters] < self.chase)

    def observation(self, state: State) -> Tensor:
        """Return the planes around the agent, uint8 `[B, 3, window, window]`."""
        *_, cells = self.tables.on(state["cell"].device)
        ones = torch.ones_like(state["monsters"], dtype=torch.uint8)
        empty = torch.zeros(len(ones), self.window**2, dtype=torch.uint8, device=ones.device)
        monsters = empty.scatter(1, self._seen(state, state["monsters"]), ones)
        treasures = empty.scatter(1, self._seen(state, cells), state["treasures"].to(torch.uint8))
        end = empty.scatter(1, self._seen(state, state["exit"].unsqueeze(1)), ones[:, :1])
        return torch.stack([monsters, treasures, end], 1).unflatten(2, (self.window, self.window))

    def _seen(self, state: State, cells: Tensor) -> Tensor:
        """Return the indices of cells `[B, n]` or `[n]` in a plane around the agent, `[B, n]`."""
        (row, column), (at_row, at_column) = self._place(cells), self._place(state["cell"].unsqueeze(1))
        return (row - at_row + self.size - 1) * self.window + column - at_column + self.size - 1

    def render(self, state: State, row: int, mode: str) -> Tensor | str:
        """Render one row: `rgb_array`, uint8 `[24 (size + 2), 24 (size + 2), 3]`, or `ansi`, one line per row of cells.

        Walls are dark, the exit is green (`G`), treasures orange (`I`), monsters purple (`M`), the agent blue (`@`).
        """
        marks = dict.fromkeys(state["treasures"][row].nonzero().flatten().tolist(), "I") | {
            int(state["exit"][row]): "G"
        }
        marks |= {int(state["cell"][row]): "@"} | dict.fromkeys(state["monsters"][row].tolist(), "M")
        inner = [[marks.get(down * self.size + right, " ") for right in range(self.size)] for down in range(self.size)]
        wall = ["#"] * (self.size + 2)
        return render_plan([wall, *(["#", *line, "#"] for line in inner), wall], mode)

    def info(self, state: State) -> dict[str, Tensor]:
        """Return success, whether the agent was caught, and the rewards of gathering and fleeing, `[B]`."""
        caught = state["caught"].float()
        gather = state["took"].float()
        return {
            "success": state["success"].float(),
            "caught": caught,
            "reward_gather": gather,
            "reward_flee": -caught,
        }
