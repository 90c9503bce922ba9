"""How long walks in 4 x 4 rooms take, computed exactly: what options are worth before anything is learned."""

import pytest
import torch
from torch import Tensor

from datamodules.envs.four_rooms.doorway_options import DIRECTIONS, GoToDoorway, PrimitiveAction
from datamodules.envs.four_rooms.env import FourRooms

MIDDLE, CORNER = 381, 423
"""Goals in the last room; the middle lies on the paths to its doorways."""


def transition_matrix(env: FourRooms) -> Tensor:
    """Return the probability of the next cell, `[cells, actions, cells]`."""
    cells = env.num_cells
    noise = (torch.arange(1200) + 0.5) / 1200
    slip = torch.stack([noise * 0, noise * 0, noise], 1)
    matrix = torch.zeros(cells, 4, cells, dtype=torch.float64)
    for action in range(4):
        for cell in range(cells):
            start = torch.full((1,), cell)
            meant = env.walk(start, torch.tensor([action]), torch.tensor([[0.0, 0.9, 0.0]]))
            astray = env.walk(start.expand(1200), torch.full((1200,), action), slip)
            matrix[cell, action] = env.slip * astray.bincount(minlength=cells).double() / 1200
            matrix[cell, action, meant] += 1 - env.slip
    return matrix


@pytest.fixture(scope="module")
def matrix() -> Tensor:
    return transition_matrix(FourRooms(rooms=4, start=0))


def steps_of_chain(chain: Tensor, goal: Tensor) -> Tensor:
    """Return the expected steps to the goal states (bool) from every state of a Markov chain."""
    going = ~goal
    inner = torch.eye(int(going.sum()), dtype=torch.float64) - chain[going][:, going]
    steps = torch.zeros(len(goal), dtype=torch.float64)
    steps[going] = torch.linalg.solve(inner, torch.ones(len(inner), dtype=torch.float64))
    return steps


def uniform_over_options(matrix: Tensor, goal: int) -> float:
    """Return the expected steps from cell 0 of a uniform choice among doorway options and primitive actions."""
    options = [*(GoToDoorway(each, rooms=4) for each in DIRECTIONS), *(PrimitiveAction(each) for each in DIRECTIONS)]
    cells, count = len(matrix), len(options)
    obs, age = torch.eye(cells), torch.zeros(cells, dtype=torch.int64)
    starts = torch.stack([option.initiation(obs) for option in options], 1).double()
    choice = starts / starts.sum(1, keepdim=True)
    chain = torch.zeros(cells, count, cells, count, dtype=torch.float64)
    for index, option in enumerate(options):
        moved = matrix[torch.arange(cells), option.action(obs, age, age)]
        ends = option.termination(obs, age).double()
        chain[:, index, :, index] += moved * (1 - ends)
        chain[:, index] += (moved * ends).unsqueeze(-1) * choice
    at_goal = (torch.arange(cells) == goal).repeat_interleave(count)
    steps = steps_of_chain(chain.reshape(cells * count, -1), at_goal)
    return float((steps.view(cells, count)[0] * choice[0]).sum())


@pytest.mark.parametrize(("goal", "expected"), [(MIDDLE, 62.4), (CORNER, 68.0)])
def test_the_shortest_walk_takes_62_or_68_steps(matrix: Tensor, goal: int, expected: float):
    steps = torch.zeros(len(matrix), dtype=torch.float64)
    for _ in range(600):
        steps = 1 + (matrix @ steps).amin(1)
        steps[goal] = 0

    assert float(steps[0]) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("goal", "expected"), [(MIDDLE, 5161), (CORNER, 6451)])
def test_a_uniform_walk_takes_thousands_of_steps(matrix: Tensor, goal: int, expected: float):
    at_goal = torch.arange(len(matrix)) == goal

    assert float(steps_of_chain(matrix.mean(1), at_goal)[0]) == pytest.approx(expected, abs=2)


@pytest.mark.parametrize(("goal", "expected"), [(MIDDLE, 637), (CORNER, 62_812)])
def test_a_uniform_choice_of_options_finds_the_middle_sooner_and_the_corner_later(
    matrix: Tensor, goal: int, expected: float
):
    assert uniform_over_options(matrix, goal) == pytest.approx(expected, abs=2)


def test_a_uniform_walk_of_40_steps_seldom_crosses_four_rooms_without_slip():
    matrix = transition_matrix(FourRooms(start=0, slip=0.0))
    corner, reached = len(matrix) - 1, 0.0
    place = torch.zeros(len(matrix), dtype=torch.float64)
    place[0] = 1

    for _ in range(40):
        place = place @ matrix.mean(1)
        reached += float(place[corner])
        place[corner] = 0

    assert reached == pytest.approx(4.3e-5, abs=1e-6)
