"""Planes: which there are, and where their arrows start."""

from typing import Any

import pytest
import torch

from callbacks.figures.plotting import new_figure
from callbacks.figures.projections import ARROWS, View, draw_speed_bar, sliced, spread, views
from datamodules.core.sequence_types import SequenceBatch, ValidationData
from tests.support.dynamics_fixtures import explorer, spring_data


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

    (view,) = views(
        model, ValidationData(SequenceBatch(obs, torch.zeros(40, 5, 2), torch.ones(40, 5, dtype=torch.bool))), 40
    )

    assert view.true is None and len(view.states) == 205
    assert (view.low < obs.amin((0, 1))).all() and (view.high > obs.amax((0, 1))).all()


def test_three_dimensions_are_seen_in_three_planes() -> None:
    cube = grid(5, 3)
    held_out = ValidationData(SequenceBatch(cube[None], cube[None], cube[None, ..., 0] > 2), grid=cube, field=2 * cube)

    planes = views(None, held_out, 40)

    assert [plane.axes for plane in planes] == [[0, 1], [0, 2], [1, 2]]
    assert all(torch.equal(plane.true, 2 * plane.states) for plane in planes)  # type: ignore[arg-type]
    assert planes[1].project(torch.tensor([1.0, 2.0, 3.0])).tolist() == [1.0, 3.0]


def panel(high: float = 1.0) -> tuple[View, Any]:
    """A plane of two axes, and the matplotlib axes that show it."""
    view = View([2, 3], torch.tensor([-1.0, -high]), torch.tensor([1.0, high]), torch.zeros(1, 4), None)
    _, ((axes,),) = new_figure()
    view.draw_axes(axes)
    return view, axes


def test_axes_have_names_and_leave_room_for_arrows_at_the_edge() -> None:
    _, axes = panel(8.0)

    assert (axes.get_xlabel(), axes.get_ylabel()) == ("state 2", "state 3")
    assert axes.get_xlim()[1] > 1 and axes.get_ylim()[1] > 8 and axes.get_box_aspect() == 1


@pytest.mark.parametrize("high", [1.0, 8.0])
def test_an_arrow_along_the_diagonal_of_a_box_is_a_space_long_in_both_axes(high: float) -> None:
    view, axes = panel(high)
    field = torch.tensor([[1.0, high]])

    arrow = view.draw_arrows(axes, torch.zeros(1, 2), field, view.scale(field))

    assert (arrow.U[0] / 2, arrow.V[0] / (2 * high)) == pytest.approx([0.5**0.5 / ARROWS] * 2)


def test_no_arrow_is_longer_than_a_space_and_its_colour_still_says_the_speed() -> None:
    view, axes = panel()
    scale = view.scale(torch.tensor([[0.0, 1.0]]))

    arrows = view.draw_arrows(axes, torch.zeros(2, 2), torch.tensor([[0.0, 9.0], [0.0, 0.5]]), scale)

    assert arrows.V.tolist() == pytest.approx([2 / ARROWS, 1 / ARROWS]) and (arrows.U == 0).all()
    assert arrows.get_array().tolist() == [9.0, 0.5] and arrows.get_clim() == (0, 1)


def test_the_colours_of_speeds_have_a_unit() -> None:
    view, axes = panel()

    draw_speed_bar(axes.figure, view.scale(torch.tensor([[0.0, 3.0]])), [axes])

    assert axes.figure.axes[1].get_ylabel() == "speed (state units / s)"
    assert axes.figure.axes[1].get_ylim() == pytest.approx((0, 3))
