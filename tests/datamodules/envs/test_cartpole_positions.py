"""CartPole without velocities: positions only, everything else as it was."""

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env

import datamodules.envs  # noqa: F401  (registers the id)


def test_it_is_cartpole_without_velocities() -> None:
    whole, part = gym.make("CartPole-v1"), gym.make("CartPolePositions-v0")
    shown, seen = whole.reset(seed=3)[0], part.reset(seed=3)[0]
    for action in (0, 1, 1, 0, 1):
        np.testing.assert_array_equal(seen, shown[[0, 2]])
        (shown, *outcome, _), (seen, *same, _) = whole.step(action), part.step(action)
        assert same == outcome
    assert part.observation_space.contains(seen)


def test_it_is_an_environment_with_the_time_limit_of_cartpole() -> None:
    env = gym.make("CartPolePositions-v0")
    check_env(env.unwrapped, skip_render_check=True)
    assert env.get_wrapper_attr("_max_episode_steps") == 500
