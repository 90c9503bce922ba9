import math

import pytest

from datamodules.core.errors import ConfigurationError
from datamodules.envs.snake.env import Snake
from datamodules.envs.snake.rewards import REWARDS, TERMS, resolve_reward_table
from tests.oracles.snake_rules import DOWN, LEFT, RIGHT, UP, place_food, play, start


def paid(rewards, food, *moves: int, **board: int) -> float:
    """Reward of the last of some moves from the first position, whose head is in column and row 2 of 7."""
    snake = Snake(rewards=rewards, **({"dim": 7, "distance_to_border": 2} | board))
    return play(snake, place_food(snake, start(snake), *food), *moves)[1].item()


def test_plain_rewards_are_the_default():
    assert Snake().rewards == resolve_reward_table("plain") == resolve_reward_table({"food": 1, "death": -1.0})


def test_classic_rewards_pay_every_step_and_include_it_in_food_and_death():
    food, alive = paid("classic", (3, 2), RIGHT), paid("classic", (3, 2), RIGHT, RIGHT)
    dead = paid("classic", (3, 2), UP, UP, UP)
    assert [food, alive, dead] == pytest.approx([15.01, 0.01, -999.99])


def test_shaped_rewards_pay_for_nearing_surviving_and_length():
    closer, farther = (paid("shaped", (4, 2), move) for move in (RIGHT, DOWN))
    food, dead = paid("shaped", (4, 2), RIGHT, RIGHT), paid("shaped", (4, 2), UP, UP, UP)
    assert [closer, farther, food] == pytest.approx([0.1 + 0.01 + 0.03, -0.1 + 0.01 + 0.03, 10 + 0.1 + 0.01 + 0.04])
    assert dead == -10.0


def test_engine_rewards_pay_for_being_near_the_food_and_inside_the_board():
    def inside(cells: int) -> float:
        return 1 / (1 + math.exp(-cells))

    near, at_the_border = paid("engine", (6, 4), RIGHT), paid("engine", (6, 4), UP, UP)
    food, dead = paid("engine", (3, 2), RIGHT), paid("engine", (6, 4), UP, UP, UP)
    assert near == pytest.approx(-0.001 + 3 / 5 + inside(2))
    assert at_the_border == pytest.approx(-0.001 + 3 / 8 + inside(0))
    assert [food, dead] == pytest.approx([70 - 0.001 + inside(2), -1000.001])


def test_danger_costs_when_three_neighbours_are_blocked():
    before, in_corner = (paid({"danger": -0.05}, (6, 6), *moves) for moves in ((UP, UP, LEFT), (UP, UP, LEFT, LEFT)))
    assert (before, in_corner) == (0.0, pytest.approx(-0.05))


@pytest.mark.parametrize("term", TERMS)
def test_every_term_acts(term: str):
    board = {"dim": 2, "start_length": 1, "distance_to_border": 0}
    moves = ((RIGHT,), (UP,), (DOWN,), (RIGHT, DOWN))
    assert any(paid({term: 2.0}, (1, 0), *path, **board) for path in moves)


def test_every_table_names_known_terms():
    assert all(resolve_reward_table(name).keys() == set(TERMS) for name in REWARDS)


@pytest.mark.parametrize(
    ("rewards", "sentence"),
    [
        ("generous", "no rewards 'generous'; choose plain, classic, shaped, engine"),
        ({"foood": 1.0}, "no reward term 'foood'; choose from food, death"),
        ({"food": "much"}, "reward food is 'much'; give it a finite number"),
        ({"food": math.nan}, "reward food is nan"),
        ({"food": -math.inf}, "reward food is -inf"),
        ({"death": True}, "reward death is True"),
    ],
)
def test_wrong_rewards_are_one_sentence(rewards, sentence: str):
    with pytest.raises(ConfigurationError, match=sentence):
        Snake(rewards=rewards)
