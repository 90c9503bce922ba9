"""An episode per life, a game per restart."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import FrameStackObservation

from datamodules.core.errors import ConfigurationError
from datamodules.wrappers import EpisodicLife
from tests.support.lives_env import Lives


def test_a_lost_life_ends_the_episode_and_the_game_goes_on() -> None:
    env = EpisodicLife(game := Lives(lives=2))
    env.reset(seed=0)

    first = [env.step(1)[2] for _ in range(2)]
    obs, info = env.reset()
    second = [env.step(1)[2] for _ in range(1)]

    assert first == [False, True] and second == [True], "the no-op of the reset was the third step"
    assert obs.item() == 3 and info["lives"] == 1
    assert game.games == 1
    env.reset()
    assert game.games == 2, "after the last life the game begins anew"


def test_a_seed_restarts_the_game() -> None:
    env = EpisodicLife(game := Lives())
    env.reset(seed=0)
    env.step(1), env.step(1)

    obs, _ = env.reset(seed=1)

    assert obs.item() == 0 and game.games == 2


def test_a_game_cut_by_its_time_limit_is_restarted() -> None:
    env = EpisodicLife(gym.wrappers.TimeLimit(game := Lives(), 1))
    env.reset(seed=0)
    assert env.step(1)[3]

    env.reset()

    assert game.games == 2


def test_a_game_that_ends_in_the_no_op_is_restarted() -> None:
    env = EpisodicLife(gym.wrappers.TimeLimit(game := Lives(), 3))
    env.reset(seed=0)
    env.step(1), env.step(1)

    obs, _ = env.reset()

    assert obs.item() == 0 and game.games == 2


def test_the_stack_of_a_new_life_holds_no_frames_of_the_life_before() -> None:
    env = EpisodicLife(FrameStackObservation(Lives(), 3))
    env.reset(seed=0)
    env.step(1)
    last, _, terminated, *_ = env.step(1)

    first, _ = env.reset()

    assert terminated and last.ravel().tolist() == [0, 1, 2]
    assert first.ravel().tolist() == [3, 3, 3]


def test_an_environment_without_lives_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="EpisodicLife needs `lives` in the info"):
        EpisodicLife(gym.make("CartPole-v1")).reset()


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version", "ignore:.*Not able to test alternative")
def test_gymnasiums_checker_accepts_it() -> None:
    check_env(EpisodicLife(Lives(render_mode="rgb_array")))


def test_what_is_rendered_is_the_game() -> None:
    env = EpisodicLife(Lives(render_mode="rgb_array"))
    env.reset(seed=0)
    env.step(1)
    assert np.asarray(env.render()).max() == 1
