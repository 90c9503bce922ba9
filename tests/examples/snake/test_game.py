import warnings

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from datamodules.core.errors import ConfigurationError
from datamodules.envs.snake.env import Snake
from tests.oracles.snake_rules import place_food


def make(**arguments):
    from game import SnakeEnv

    return SnakeEnv(**arguments)


@pytest.mark.parametrize("use_features", [False, True])
def test_it_passes_gymnasiums_check(use_features: bool):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(startingBlocks=3, dim=10, distToBorder=3, use_features=use_features), skip_render_check=True)


@pytest.mark.parametrize(("use_features", "rewards"), [(False, "classic"), (True, "shaped")])
def test_it_plays_the_game_of_snake_v0(use_features: bool, rewards: str):
    layout, actions = ("features" if use_features else "grid"), np.random.default_rng(3)
    snake = Snake(5, 2, 1, layout, rewards, "board")
    env, games = make(startingBlocks=2, dim=5, distToBorder=1, use_features=use_features), 0
    while games < 40:
        obs, _ = env.reset(seed=games)
        x, y = (column - 1 for column in env.body[0])
        state = snake.initial(torch.tensor([[x / 2 + 0.1, y / 2 + 0.1, 0.0]]))
        games, ended = games + 1, False
        while not ended:
            state = place_food(snake, state, *env.food)
            assert np.allclose(snake.observation(state)[0], obs, atol=1e-6)
            action = int(actions.integers(4))
            obs, reward, terminated, truncated, info = env.step(action)
            state, paid, *flags = snake.transition(state, torch.tensor([action]), torch.zeros(1, 3))
            assert reward == pytest.approx(paid.item(), abs=1e-5)
            assert [terminated, truncated] == [flag.item() for flag in flags]
            assert info == {name: value.item() for name, value in snake.info(state).items()}
            ended = terminated or truncated


def test_every_game_has_its_own_state():
    first, second = make(), make()
    first.reset(seed=0), second.reset(seed=0)
    before = second.board.copy()
    first.step(0)
    assert np.array_equal(second.board, before) and not np.array_equal(first.board, before)


def test_a_full_board_ends_the_game():
    """A snake that goes round a board of 2 x 2 eats all there is; it does not die before."""
    env = make(startingBlocks=1, dim=2, distToBorder=0)
    env.reset(seed=0)
    lengths, ended = [], False
    for action in (1, 2, 3, 0) * 2:  # from the upper left corner; turning back at first goes straight on
        _, reward, terminated, truncated, info = env.step(action)
        lengths.append(info["snake_length"])
        if ended := terminated or truncated:
            break

    assert ended and terminated and not truncated and lengths[-1] == 4 and reward > 0
    assert sorted(env.body) == [(0, 0), (0, 1), (1, 0), (1, 1)] and not (env.board == 0).any()


def test_it_shows_itself():
    text, picture = make(render_mode="ansi", dim=7, distToBorder=2), make(render_mode="rgb_array")
    text.reset(seed=0), picture.reset(seed=0)
    assert text.render().count("@") == text.render().count("*") == 1
    assert picture.render().shape == (160, 160, 3)


@pytest.mark.parametrize("arguments", [{"startingBlocks": 6}, {"dim": 6}, {"distToBorder": -1}])
def test_a_snake_that_does_not_fit_is_refused(arguments):
    with pytest.raises(ConfigurationError, match=r"choose .*\.$"):
        make(**arguments)
