"""Forager: a scripted player of the grid world that walks to the nearest useful object."""

import torch
from torch import Tensor, nn

from datamodules.core.types import PolicyInput, PolicyOutput, SpaceSpec, State, require_tensor
from datamodules.envs.gridworld.env import PLANES

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
"""Rows and columns of the moves north, south, west and east, whose action codes start at 1."""


class Forager(nn.Module):
    """Policy that takes the first step of a shortest path to the nearest useful object in its view.

    Useful are idle mines while it can carry more ore, idle generators if it has ore and can carry more batteries, and
    idle altars that are stocked or that it can pay. Distances are breadth-first, around walls, objects and agents. If
    it sees no such object it walks on in its last direction, and turns at random where that is closed. It sees what an
    agent sees, and remembers its direction only.

    Args:
        spaces: spaces of an agent.
        capacity: most ore, and most batteries, that an agent carries; that of the environment.
        altar_cost: batteries for a heart; that of the environment.
    """

    no_direction: Tensor

    def __init__(self, spaces: SpaceSpec, capacity: int = 10, altar_cost: int = 3) -> None:
        super().__init__()
        self.view, self.capacity, self.altar_cost = spaces["obs_shape"][-1], capacity, altar_cost
        self.register_buffer("no_direction", torch.zeros(1, dtype=torch.int64))

    def initial_state(self, batch: int) -> State:
        """Return the last directions `[batch]`: none."""
        return {"heading": self.no_direction.repeat(batch)}

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Draw the numbers `[*shape, 4]` that order equally good directions."""
        return torch.rand(*shape, len(MOVES), generator=generator, device=generator.device)

    @torch.no_grad()
    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Choose a direction for every row; ties are broken by the noise, without it by the order of the directions."""
        plane = dict(zip(PLANES, require_tensor(inputs.obs).unbind(1), strict=True))
        open_, goal = self._map(plane)
        steps = around(distances(goal, open_), self.view // 2)
        reachable, centre = around(open_.float(), self.view // 2) > 0, torch.zeros_like(steps)
        ties = centre if noise is None else noise
        heading = inputs.state["heading"].masked_fill(inputs.episode_start, 0)
        ahead = nn.functional.one_hot(heading, len(MOVES) + 1)[:, 1:]
        wander = torch.where(reachable, ties + ahead, -1.0).argmax(1)
        toward = (steps + ties / 2).argmin(1)
        action = 1 + torch.where(steps.amin(1) < torch.inf, toward, wander)
        return PolicyOutput(action, {}), {"heading": action}

    def _map(self, plane: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the cells that can be entered and those of useful objects, bool `[B, view, view]`."""
        carried = {name: (plane[name].int() * self.capacity + 254) // 255 for name in ("ore", "battery")}
        seen = {name: value > 0 for name, value in plane.items()}
        room = {name: count < self.capacity for name, count in carried.items()}
        mine = seen["mine"] & room["ore"]
        generator = seen["generator"] & (carried["ore"] > 0) & room["battery"]
        altar = seen["altar"] & (seen["stocked"] | (carried["battery"] >= self.altar_cost))
        closed = seen["wall"] | seen["mine"] | seen["generator"] | seen["altar"] | seen["agent"]
        return ~closed, (mine | generator | altar) & ~seen["busy"]


def distances(goal: Tensor, open_: Tensor) -> Tensor:
    """Return the steps of a shortest path from open cells to a goal, float32 `[B, H, W]`; infinite where there is none.

    Paths of more than three times H steps are not found.

    Args:
        goal: cells to reach, whose distance is 0.   open_: cells that a path may cross; bool `[B, H, W]`.
    """
    far = torch.full_like(goal, torch.inf, dtype=torch.float32)
    steps = far.masked_fill(goal, 0.0)
    for _ in range(3 * goal.shape[1]):
        framed = nn.functional.pad(steps, (1, 1, 1, 1), value=torch.inf)
        beside = torch.stack((framed[:, :-2, 1:-1], framed[:, 2:, 1:-1], framed[:, 1:-1, :-2], framed[:, 1:-1, 2:]))
        steps = torch.minimum(steps, torch.where(open_, beside.amin(0) + 1, far))
    return steps


def around(values: Tensor, centre: int) -> Tensor:
    """Return the values `[B, 4]` north, south, west and east of the centre of `[B, H, W]`."""
    return torch.stack([values[:, centre + down, centre + right] for down, right in MOVES], 1)
