"""Errands in rooms: transport of an item, and a goal behind locked doors."""

from collections.abc import Sequence
from itertools import permutations

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import State
from datamodules.envs.four_rooms.env import Rooms
from datamodules.envs.four_rooms.plan import OUTSIDE


class FetchAndDeliver(Rooms):
    """Transport of an item from the middle of one room to that of another, as a `TorchFuncEnv`.

    Reward 1 on delivery, which terminates the episode; none for the item, which is picked up by entering its cell. The
    agent starts in any cell. Observation, float32 `[cells + 2 rooms^2 + 1]`: the cell, the item's room and its target
    room, each one-hot, and whether the item is carried. See `Rooms` for the moves.

    Args:
        deliveries: pairs of rooms, from and to, from which each episode draws one; null: all pairs.
        slip: probability of a random move, in [0, 1].
        time_limit: steps after which an episode is truncated.
        rooms: number of rooms on a side.

    Raises: ConfigurationError if an argument is out of range.
    """

    noise_size = 4

    def __init__(
        self,
        deliveries: Sequence[Sequence[int]] | None = None,
        slip: float = 1 / 3,
        time_limit: int = 500,
        rooms: int = 2,
    ) -> None:
        super().__init__(rooms, 2 * rooms**2 + 1, slip, time_limit)
        self.num_rooms = len(self.plan.middles)
        every = list(permutations(range(self.num_rooms), 2))
        chosen = every if deliveries is None else [tuple(pair) for pair in deliveries]
        wrong = [list(pair) for pair in chosen if pair not in every]
        if wrong or not chosen:
            raise ConfigurationError(
                f"FetchAndDeliver has deliveries {wrong}; give pairs of two different rooms from 0 to"
                f" {self.num_rooms - 1}, like [0, 3]."
            )
        self._host |= {"deliveries": torch.tensor(chosen), "middle": torch.tensor(self.plan.middles)}

    def initial(self, noise: Tensor) -> State:
        """Return initial states from uniforms `[B, 4]`: the first draws the cell, the last the delivery."""
        deliveries = self._table("deliveries", noise.device)
        origin, target = deliveries[(noise[:, 3] * len(deliveries)).long()].unbind(1)
        cell = (noise[:, 0] * self.num_cells).long()
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
        target, origin = (self.plan.middles[int(state[name][row])] for name in ("target", "origin"))
        return {target: "G"} | ({} if state["carries"][row] else {origin: "I"})

    def observation(self, state: State) -> Tensor:
        """Return the cell, the item's room, its target room, and whether it is carried, `[B, cells + ...]`."""
        rooms = [F.one_hot(state[name], self.num_rooms) for name in ("origin", "target")]
        return torch.cat([self.cell_observation(state), *rooms, state["carries"].unsqueeze(1)], 1).float()


class KeyDoor(Rooms):
    """Navigation to a goal in a room whose doors are locked without a key, as a `TorchFuncEnv`.

    Reward 1 at the goal, which terminates the episode; none for the key, which is picked up by entering its cell. The
    info has `reward_key`, 1 in the step that picks it up.
    Without the key the agent can enter the doorways of the goal's room, but not the room. Observation, float32
    `[cells + 1]`: the cell, one-hot, and whether the key is carried. See `Rooms` for the moves.

    Args:
        key: number of the key's cell; null: the middle of the upper right room.
        goal: number of the goal's cell; null: the middle of the last room, in the lower right.
        slip: probability of a random move, in [0, 1].
        time_limit: steps after which an episode is truncated.
        rooms: number of rooms on a side.
        start: number of the cell where an episode begins.

    Raises: ConfigurationError if an argument is out of range, the goal is in a doorway, or key or start in its room.
    """

    noise_size = 3

    def __init__(
        self,
        key: int | None = None,
        goal: int | None = None,
        slip: float = 1 / 3,
        time_limit: int = 500,
        rooms: int = 2,
        start: int = 0,
    ) -> None:
        super().__init__(rooms, 1, slip, time_limit)
        middles = self.plan.middles
        self.key, self.start = middles[rooms - 1] if key is None else key, start
        self._host |= {"goal": torch.tensor(0), "locked": torch.zeros(self.num_cells, dtype=torch.bool)}
        self.move_goal_(middles[-1] if goal is None else goal)

    def move_goal_(self, goal: int) -> None:
        """Move the goal, and the locks to its room, from the next step on, on any device.

        Raises: ConfigurationError if there is no such cell, it is in a doorway, or key or start are in its room.
        """
        room_of = self.plan.room_of
        for name, cell in (("goal", goal), ("key", self.key), ("start", self.start)):
            self._check_cell(cell, name)
        if room_of[goal] in (OUTSIDE, room_of[self.key], room_of[self.start]):
            raise ConfigurationError(
                f"KeyDoor has the goal in cell {goal}, key in {self.key} and start in {self.start}; put the goal into a"
                " room without the other two, not into a doorway."
            )
        self._fill_table("goal", torch.tensor(goal))
        self._fill_table("locked", torch.tensor(room_of) == room_of[goal])

    def initial(self, noise: Tensor) -> State:
        """Return initial states; the uniforms `[B, 3]` are not used."""
        step = torch.zeros_like(noise[:, 0], dtype=torch.int64)
        no = torch.zeros_like(step, dtype=torch.bool)
        return {"cell": step + self.start, "step": step, "carries": no, "took": no.clone(), "success": no.clone()}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Step with actions `[B]` and the uniforms `[B, 3]` of `walk`."""
        cell, step = self.walk(state["cell"], action, noise), state["step"] + 1
        shut = self._table("locked", cell.device)[cell] & ~state["carries"]
        cell = torch.where(shut, state["cell"], cell)
        carries, success = state["carries"] | (cell == self.key), cell == self._table("goal", cell.device)
        took = carries & ~state["carries"]
        state = {"cell": cell, "step": step, "carries": carries, "took": took, "success": success}
        return state, success.float(), success, step >= self.time_limit

    def info(self, state: State) -> dict[str, Tensor]:
        """Return whether the agent succeeded, and the reward of the key, `[B]`."""
        return super().info(state) | {"reward_key": state["took"].float()}

    def marks(self, state: State, row: int) -> dict[int, str]:
        """Mark the goal, and the key until it is carried."""
        return {int(self._host["goal"]): "G"} | ({} if state["carries"][row] else {self.key: "I"})

    def observation(self, state: State) -> Tensor:
        """Return the cell and whether the key is carried, `[B, cells + 1]`."""
        return torch.cat([self.cell_observation(state), state["carries"].unsqueeze(1).float()], 1)
