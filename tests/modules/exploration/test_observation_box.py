"""The box of observations: given, or grown with what was visited; and what uses it."""

from typing import Any

import pytest
import torch

from modules.exploration.acquisitions import OutsideObservationBox
from modules.exploration.observation_box import ObservationBox
from modules.exploration.policies import Belief, HeldRandomAction, imagine
from tests.support.dynamics_fixtures import knowledge


def test_a_given_box_tells_by_how_much_it_is_exceeded_and_does_not_grow() -> None:
    box = ObservationBox(2, low=[-1.0, -2.0], high=1.0)

    box.visit_(torch.tensor([[9.0, 9.0]]))

    assert box.excess(torch.tensor([[1.5, 0.0], [-2.0, -2.5], [0.0, 1.0]])).tolist() == [[0.5, 0], [-1, -0.5], [0, 0]]


def test_an_unknown_box_grows_with_what_was_visited_by_its_margin() -> None:
    box = ObservationBox(2, margin=0.5)
    assert (box.excess(torch.full((1, 2), 1e9)) == 0).all()  # nothing is known to be outside

    box.visit_(torch.tensor([[0.0, 1.0], [2.0, 1.0]]))
    box.visit_(torch.zeros(0, 2))

    low, high = box.bounds
    assert low.tolist() == [-1, 1] and high.tolist() == [3, 1]
    assert set(box.state_dict()) == {"lowest", "highest"}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"low": 1.0}, "give both bounds or neither"),
        ({"low": [0.0], "high": 1.0}, "1 bounds for observations of 2 elements"),
        ({"low": 1.0, "high": 1.0}, "must be less than high"),
    ],
)
def test_impossible_bounds_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        ObservationBox(2, **settings)


def test_steps_to_observations_outside_are_penalised() -> None:
    known = knowledge()._replace(box=ObservationBox(2, low=-1.0, high=1.0))
    actions = torch.zeros(1, 2, 3, 2)
    actions[0, 1, 1:] = 1.0  # 0.2 a step from 0.7: outside after the third

    paths = imagine(known, Belief(torch.full((1, 2), 0.7), torch.zeros(1, 2)), actions)

    assert OutsideObservationBox(weight=2.0)(known, paths).tolist() == [[[0, 0, 0], [0, 0, -1]]]


def test_a_held_action_is_kept_while_a_growing_box_is_unknown() -> None:
    known = knowledge()._replace(box=ObservationBox(2))
    policy, noise = HeldRandomAction(turn_back=True), torch.full((1, 2), 0.5)
    belief = Belief(torch.ones(1, 2), torch.zeros(1, 2))

    action, _ = policy(known, belief, policy.initial_state(1, 2), noise)

    assert torch.equal(action, HeldRandomAction()(known, belief, policy.initial_state(1, 2), noise)[0])


def test_a_held_action_turns_back_outside_the_box_alone() -> None:
    known = knowledge()._replace(box=ObservationBox(2, low=-1.0, high=1.0))
    policy, noise = HeldRandomAction(steps=3, turn_back=True), torch.full((3, 2), 0.5)
    belief = Belief(torch.tensor([[0.0, 0.0], [1.5, 0.0], [1.5, -1.5]]), torch.zeros(3, 2))
    plain, _ = HeldRandomAction(steps=3)(known, belief, policy.initial_state(3, 2), noise)

    turned, state = policy(known, belief, policy.initial_state(3, 2), noise)
    later, _ = policy(known, Belief(torch.zeros(3, 2), torch.zeros(3, 2)), state, noise)

    signs = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [-1.0, 1.0]])
    assert (plain > 0).all() and torch.equal(turned, plain * signs)
    assert torch.equal(later, turned)  # held for the rest of the period
