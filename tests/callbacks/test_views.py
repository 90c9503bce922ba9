"""Planes: which there are, and where their arrows start."""

from typing import Any

import pytest
import torch

from callbacks.canvas import ARROWS
from callbacks.views import sliced, spread, views
from datamodules.sequence_types import HeldOut, Sequences
from tests.dynamics import explorer, spring_data


def grid(side: int, dimensions: int) -> torch.Tensor:
    return torch.cartesian_prod(*[torch.linspace(-1, 1, side)] * dimensions)


def test_no_more_arrows_than_fit() -> None:
    states = grid(31, 2)[sliced(grid(31, 2), (0, 1))]

    assert len(states) == 11 * 11 and len(states.unique(dim=0)) == 11 * 11
    assert len(spread(torch.zeros(9_000, 2))) == ARROWS**2 and spread(torch.zeros(3, 2)).tolist() == [0, 1, 2]


@pytest.mark.parametrize("axes", [(0, 1), (0, 2), (1, 2)])
def test_a_slice_lies_in_the_middle_of_the_other_axis(axes: tuple[int, int]) -> None:
    cube = grid(9, 3)

    states = cube[sliced(cube, axes)]

    (other,) = {0, 1, 2} - set(axes)
    assert len(states[:, list(axes)].unique(dim=0)) == 81 and (states[:, other] == 0).all()


def test_where_no_field_is_known_arrows_start_at_what_was_held_out() -> None:
    obs = torch.randn(41, 5, 2, generator=torch.Generator().manual_seed(0))
    model: Any = explorer(spring_data())

    (view,) = views(model, HeldOut(Sequences(obs, torch.zeros(40, 5, 2), torch.ones(40, 5, dtype=torch.bool))), 40)

    assert view.true is None and len(view.states) == 205
    assert (view.low < obs.amin((0, 1))).all() and (view.high > obs.amax((0, 1))).all()


def test_three_dimensions_are_seen_in_three_planes() -> None:
    cube = grid(5, 3)
    held_out = HeldOut(Sequences(cube[None], cube[None], cube[None, ..., 0] > 2), grid=cube, field=2 * cube)

    planes = views(None, held_out, 40)

    assert [plane.axes for plane in planes] == [[0, 1], [0, 2], [1, 2]]
    assert all(torch.equal(plane.true, 2 * plane.states) for plane in planes)  # type: ignore[arg-type]
    assert planes[1].seen(torch.tensor([1.0, 2.0, 3.0])).tolist() == [1.0, 3.0]
