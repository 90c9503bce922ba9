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


def test_its_vector_form_is_gymnasiums_without_velocities() -> None:
    how = {"num_envs": 3, "vectorization_mode": "vector_entry_point"}
    whole, part = gym.make_vec("CartPole-v1", **how), gym.make_vec("CartPolePositions-v0", **how)
    np.testing.assert_array_equal(part.reset(seed=2)[0], whole.reset(seed=2)[0][:, [0, 2]])
    for _ in range(30):
        (shown, *outcome, _), (seen, *same, _) = (envs.step(np.array([0, 1, 1])) for envs in (whole, part))
        np.testing.assert_array_equal(seen, shown[:, [0, 2]])
        np.testing.assert_array_equal(same, outcome)
