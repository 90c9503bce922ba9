"""Eigenpurpose: rewards of options along the slow directions of a grid of rooms."""

import torch
from torch import Tensor

from datamodules.core.arguments import check_ranges
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import Obs, require_tensor
from datamodules.env_interface.device_constants import DeviceConstants
from datamodules.envs.four_rooms.plan import MOVES, OUTSIDE, RoomPlan

VERTICAL_WEIGHT = 1.01
"""Weight of a vertical step, a horizontal one has 1: it separates the equal eigenvalues of a square plan."""


class Eigenpurpose:
    """Reward of an option (`SACOptions.option_rewards`): the increase of an eigenvector of the plan's graph Laplacian.

    r(s, s') = sign sqrt(cells) (e(s') - e(s)). The first eigenvectors that are not constant vary slowly over the grid
    and change most in doorways, so the option that maximises the reward crosses rooms. Nothing of the task is used, but
    the graph of the cells is; the source estimates it from transitions as well.

    Args:
        index: eigenvector, 1 for the slowest; its sign is that of an increase away from cell 0.
        sign: 1 or -1.
        rooms: number of rooms on a side, as in the environment.

    Raises: ConfigurationError if an argument is out of range.

    Source: Machado, Bellemare and Bowling 2017, arXiv:1703.00956, eq. 1 and section 3.
    """

    def __init__(self, index: int, sign: int = 1, rooms: int = 2) -> None:
        vectors = laplacian_eigenvectors(RoomPlan(rooms))
        check_ranges(
            "Eigenpurpose",
            ("index", index, 1 <= index < len(vectors), f"an index from 1 to {len(vectors) - 1}"),
            ("sign", sign, sign in (-1, 1), "1 or -1"),
        )
        vector = vectors[:, index]
        upward = sign * (-1 if vector[0] > 0 else 1)
        self.table = DeviceConstants((upward * len(vector) ** 0.5 * vector).float())
        self.cells = len(vector)

    def reward(self, obs: Obs, action: Tensor, next_obs: Obs, task: Tensor) -> Tensor:
        """Return the reward, `[U, N]`, from observations `[U, N, ...]` that begin with the cell, one-hot.

        Raises: ConfigurationError if they have too few or too many numbers for `rooms`.
        """
        size = require_tensor(obs).shape[-1]
        if not self.cells <= size < 2 * self.cells:
            raise ConfigurationError(
                f"Eigenpurpose has {self.cells} cells, but observations have {size} numbers: use it in an environment"
                " of rooms, with the same `rooms`."
            )
        (vector,) = self.table.on(task.device)
        before, after = (vector[require_tensor(each)[..., : self.cells].argmax(-1)] for each in (obs, next_obs))
        return after - before


def laplacian_eigenvectors(plan: RoomPlan) -> Tensor:
    """Return the eigenvectors of the graph Laplacian D - W of the cells, float64 `[cells, cells]`, slowest first."""
    count = len(plan.cells)
    weight = torch.zeros(count, count, dtype=torch.float64)
    for cell in range(count):
        for move, (down, _) in enumerate(MOVES):
            beyond = plan.neighbour(cell, move)
            if beyond != OUTSIDE:
                weight[cell, beyond] = VERTICAL_WEIGHT if down else 1.0
    return torch.linalg.eigh(weight.sum(1).diag() - weight).eigenvectors
