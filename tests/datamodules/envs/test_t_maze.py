"""T-maze: what is shown where, and what the moves and turns bring."""

import pytest
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.envs.t_maze import DOWN, LEFT, RIGHT, UP, TMaze

NOISE = torch.zeros(2, 1)


def walked(env: TMaze, *actions: int) -> tuple[dict[str, Tensor], list[list[float]], Tensor, Tensor]:
    """Two mazes, the reward above in the first and below in the second: last state, rewards of every step, flags."""
    state, rewards = env.initial(torch.tensor([[0.2], [0.7]])), []
    for action in actions:
        state, reward, terminated, truncated = env.transition(state, torch.full((2,), action), NOISE)
        rewards.append(pytest.approx(reward.tolist()))
    return state, rewards, terminated, truncated


def test_the_sign_is_shown_in_the_first_cell_only() -> None:
    env = TMaze(length=2)
    shown = [env.observation(env.initial(torch.tensor([[0.2], [0.7]]))).tolist()]
    shown += [env.observation(walked(env, *[RIGHT] * steps)[0]).tolist() for steps in (1, 2)]
    assert shown == [[[1, 0, 0, 0], [0, 1, 0, 0]], [[0, 0, 1, 0]] * 2, [[0, 0, 0, 1]] * 2]


@pytest.mark.parametrize(("turn", "rewards"), [(UP, [4.0, -0.1]), (DOWN, [-0.1, 4.0])])
def test_a_turn_at_the_junction_ends_the_episode_and_pays_on_one_side(turn: int, rewards: list[float]) -> None:
    env = TMaze(length=2)
    state, paid, terminated, truncated = walked(env, RIGHT, RIGHT, turn)
    assert paid == [[0, 0], [0, 0], rewards]
    assert terminated.all() and not truncated.any()
    assert env.info(state)["success"].tolist() == [reward > 0 for reward in rewards]


def test_walls_stop_and_cost() -> None:
    state, paid, terminated, _ = walked(TMaze(length=2), LEFT, UP, RIGHT, DOWN, LEFT)
    assert paid == [[-0.1, -0.1], [-0.1, -0.1], [0, 0], [-0.1, -0.1], [0, 0]]
    assert not terminated.any() and not state["cell"].any()


def test_an_episode_is_truncated_after_ten_times_its_shortest_length() -> None:
    *_, truncated = walked(TMaze(length=2), *[LEFT] * 29)
    *_, later = walked(TMaze(length=2), *[LEFT] * 30)
    assert not truncated.any() and later.all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"length": 0}, "length 0; choose at least 1 move"),
        ({"time_limit": 0}, "time_limit 0; choose at least 1 step, or null"),
    ],
)
def test_an_argument_out_of_range_is_refused_with_its_rule_alone(settings: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^TMaze has {said}.$"):
        TMaze(**settings)
