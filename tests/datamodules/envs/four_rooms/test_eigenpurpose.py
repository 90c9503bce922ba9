import numpy as np
import pytest
import torch
from torch.nn import functional as F

from datamodules.core.errors import ConfigurationError
from datamodules.envs.four_rooms.eigenpurpose import Eigenpurpose, laplacian_eigenvectors
from datamodules.envs.four_rooms.plan import RoomPlan


def rewards(purpose: Eigenpurpose, cells: list[int]) -> list[float]:
    """Return the rewards of a walk over cells."""
    walk = F.one_hot(torch.tensor([cells]), purpose.cells).float()
    nothing = torch.zeros(1, len(cells) - 1)
    return purpose.reward(walk[:, :-1], nothing.long(), walk[:, 1:], nothing)[0].tolist()


def test_eigenvectors_solve_the_equation_of_the_graph_laplacian_in_order():
    plan = RoomPlan(3)
    places = {place: number for number, place in enumerate(plan.cells)}
    laplacian = np.zeros((len(places), len(places)))
    for (row, column), cell in places.items():
        for weight, beyond in ((1.01, (row + 1, column)), (1.0, (row, column + 1))):
            if beyond in places:
                pair = [cell, places[beyond]]
                laplacian[np.ix_(pair, pair)] += weight * np.array([[1, -1], [-1, 1]])

    vectors = laplacian_eigenvectors(plan).numpy()

    values = (vectors * (laplacian @ vectors)).sum(0)
    assert np.allclose(laplacian @ vectors, vectors * values) and (np.diff(values) > -1e-9).all()
    assert values[:4] == pytest.approx(np.linalg.eigvalsh(laplacian)[:4]) and values[1] > 1e-3


def test_the_slowest_directions_of_square_plans_are_across_and_down():
    plan = RoomPlan(4)
    across, down, back = Eigenpurpose(1, 1, 4), Eigenpurpose(2, 1, 4), Eigenpurpose(1, -1, 4)
    right, below = [plan.middles[0], plan.middles[1]], [plan.middles[0], plan.middles[4]]

    assert rewards(across, right)[0] > 0.5 and abs(rewards(across, below)[0]) < 0.05
    assert rewards(down, below)[0] > 0.5 and abs(rewards(down, right)[0]) < 0.05
    assert rewards(back, right)[0] == pytest.approx(-rewards(across, right)[0])


def test_the_rewards_of_a_walk_back_to_its_start_sum_to_zero():
    assert sum(rewards(Eigenpurpose(3), [0, 1, 2, 7, 6, 1, 0])) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("size", [424, 15])
def test_observations_of_other_environments_are_refused(size: int):
    obs, nothing = torch.zeros(1, 2, size), torch.zeros(1, 2)

    with pytest.raises(ConfigurationError, match=f"has 104 cells, but observations have {size} numbers"):
        Eigenpurpose(1).reward(obs, nothing.long(), obs, nothing)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"index": 0}, "index 0; choose an index from 1 to 103"),
        ({"index": 104}, "index 104; choose an index from 1 to 103"),
        ({"index": 1, "sign": 0}, "sign 0; choose 1 or -1"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, int], said: str):
    with pytest.raises(ConfigurationError, match=f"^Eigenpurpose has {said}.$"):
        Eigenpurpose(**settings)
