"""Hand-written options of an agent in rooms: walk to a doorway of the current room, or take one step.

They read the cell, one-hot, from the first numbers of the observation, so they serve every environment of the folder.
"""

from typing import Literal

import torch
from torch import Tensor

from datamodules.env_interface.device_constants import DeviceConstants
from datamodules.envs.four_rooms.plan import OUTSIDE, RoomPlan

DIRECTIONS = ("up", "right", "down", "left")

Direction = Literal["up", "right", "down", "left"]


class PrimitiveAction:
    """Option that takes one action for one step, anywhere.

    Args:
        direction: direction of the step.
    """

    uses_actor = False
    min_duration = max_duration = 1

    def __init__(self, direction: Direction) -> None:
        self.move = DIRECTIONS.index(direction)

    def initiation(self, obs: Tensor) -> Tensor:
        """Return True, bool `[B]`."""
        return torch.ones(len(obs), dtype=torch.bool, device=obs.device)

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """Return the action, int64 `[B]`."""
        return torch.full_like(actor_action, self.move)

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Return 1, `[B]`."""
        return torch.ones(len(obs), device=obs.device)


class GoToDoorway:
    """Option that walks by a shortest path within the room to its doorway in a direction, and ends in any doorway.

    It may start where the room has such a doorway. In a doorway it leads through the room in its direction, or through
    the one right or below.

    Args:
        direction: side of the room on which the doorway is.
        rooms: number of rooms on a side, as in the environment.
        max_duration: maximum number of steps, for a doorway that is locked.
    """

    uses_actor = False
    min_duration = 1

    def __init__(self, direction: Direction, rooms: int = 2, max_duration: int = 30) -> None:
        self.max_duration = max_duration
        plan = RoomPlan(rooms)
        path = plan.path(DIRECTIONS.index(direction))
        ends = torch.tensor([room == OUTSIDE for room in plan.room_of])
        self.tables = DeviceConstants(path.clamp(min=0), path != OUTSIDE, ends.float())
        self.cells = len(path)

    def initiation(self, obs: Tensor) -> Tensor:
        """Return whether there is a doorway in the direction, bool `[B]`."""
        return self._tables(obs)[1][self._cell(obs)]

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """Return the next step of the path, int64 `[B]`."""
        return self._tables(obs)[0][self._cell(obs)]

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Return 1 in a doorway and 0 elsewhere, `[B]`."""
        return self._tables(obs)[2][self._cell(obs)]

    def _tables(self, obs: Tensor) -> tuple[Tensor, ...]:
        return self.tables.on(obs.device)

    def _cell(self, obs: Tensor) -> Tensor:
        return obs[:, : self.cells].argmax(-1)
