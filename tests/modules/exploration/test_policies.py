"""Policies of exploration: what they try, and that every agent's episode has a state of its own."""

import pytest
import torch
from torch import Tensor

from modules.exploration.acquisitions import ActionCost, InformationGain, OutsideBox
from modules.exploration.planners import CEM
from modules.exploration.policies import (
    Belief,
    ChirpInput,
    Exploration,
    HeldRandomAction,
    PlannedExploration,
    RandomAction,
    StepInput,
    ZeroAction,
    imagine,
)
from tests.support.dynamics_fixtures import knowledge

HERE = Belief(torch.zeros(2, 2), torch.zeros(2, 2))


def tried(policy: Exploration, steps: int) -> Tensor:
    """Actions `[steps, 2, 2]` of two agents."""
    random, state, actions = torch.Generator().manual_seed(0), policy.initial_state(2, 2), []
    for _ in range(steps):
        noise = torch.randn(2, policy.noise_size(2), generator=random)
        action, state = policy(knowledge(), HERE, state, noise)
        actions.append(action)
    return torch.stack(actions)


def test_random_is_uniform() -> None:
    actions = tried(RandomAction(), 2000)

    assert actions.abs().max() <= 1
    torch.testing.assert_close(
        actions.flatten().quantile(torch.tensor([0.25, 0.5, 0.75])), torch.tensor([-0.5, 0, 0.5]), atol=0.05, rtol=0
    )


def test_held_changes_every_so_many_steps() -> None:
    actions = tried(HeldRandomAction(steps=3), 9)

    changes = (actions[1:] != actions[:-1]).any(-1).any(-1)
    assert changes.tolist() == [False, False, True, False, False, True, False, False]


def test_off_does_nothing() -> None:
    assert not tried(ZeroAction(), 3).any()


def test_step_moves_one_dimension_at_a_time() -> None:
    actions = tried(StepInput(steps=1, amplitude=0.5), 6)[:, 0]

    assert actions.tolist() == [[0.5, 0], [0, 0], [-0.5, 0], [0, 0.5], [0, 0], [0, -0.5]]


def test_the_sinusoid_grows_faster_and_repeats() -> None:
    actions = tried(ChirpInput(slowest=100, fastest=10, sweep=300), 600)[:, 0, 0]

    torch.testing.assert_close(actions[:300], actions[300:])
    crossings = (actions[1:300].sign() != actions[:299].sign()).nonzero()[:, 0].diff().float()
    assert crossings[-1] < crossings[0] / 3


def test_planning_leads_to_where_little_is_known() -> None:
    """All is known on the left: the plan goes right."""
    known = knowledge()
    left = torch.rand(200, 2, generator=torch.Generator().manual_seed(1)) * torch.tensor([-2.0, 4.0]) - torch.tensor(
        [0.0, 2.0]
    )
    features = known.model.dynamics.features(left).double()
    precision = torch.eye(26).double() + features.T @ features / 0.05
    known = known._replace(covariance=precision.inverse().float())
    planner = PlannedExploration(CEM(horizon=10), [InformationGain()])

    action, _ = planner(known, HERE, planner.initial_state(2, 2), torch.randn(2, planner.noise_size(2)))

    assert (action[:, 0] > 0.2).all()


def test_paths_follow_the_model_under_scaled_actions() -> None:
    known, actions = knowledge(), torch.rand(2, 3, 4, 2) * 2 - 1

    paths = imagine(known, Belief(torch.ones(2, 2), torch.zeros(2, 2)), actions)

    state = torch.ones(2, 3, 2)
    for t in range(4):
        state = known.model.dynamics.step(state, 2 * actions[:, :, t])
        torch.testing.assert_close(paths.latent[:, :, t + 1], state)


def test_few_agents_at_a_time_score_as_all_at_once() -> None:
    planner, actions = PlannedExploration(CEM(horizon=2), [InformationGain()]), torch.rand(5, 300, 2, 2)
    belief = Belief(torch.rand(5, 2), torch.zeros(5, 2))

    torch.testing.assert_close(
        planner.score(knowledge(), belief, actions), planner.score_batch(knowledge(), belief, actions)
    )


def test_acquisitions_are_weighted_added_and_discounted() -> None:
    actions = torch.rand(2, 3, 2, 2)
    costs = ActionCost(weight=3.0)(knowledge(), imagine(knowledge(), HERE, actions))

    score = PlannedExploration(CEM(horizon=2), [ActionCost(weight=3.0), OutsideBox([-9.0], [9.0])], discount=0.5).score(
        knowledge(), HERE, actions
    )

    torch.testing.assert_close(score, 3 * (costs[..., 0] + 0.5 * costs[..., 1]))


@pytest.mark.parametrize("settings", [{"steps": 0}, {"steps": -1}])
def test_impossible_values_are_refused(settings: dict) -> None:
    with pytest.raises(ValueError, match="steps is"):
        HeldRandomAction(**settings)
