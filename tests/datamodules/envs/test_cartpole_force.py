"""CartPole pushed by any force: Gymnasium's physics, whatever the force, all the way round."""

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env

import datamodules.envs  # noqa: F401  (registers the id)
from datamodules.envs.cartpole import CartPoleForce


def test_it_is_cartpole_where_cartpole_can_be() -> None:
    whole, part = gym.make("CartPole-v1"), gym.make("CartPoleForce-v0")
    shown, seen = whole.reset(seed=3)[0], part.reset(seed=3)[0]
    for action in (0, 1, 1, 0, 1):
        np.testing.assert_allclose(seen, [np.cos(shown[2]), np.sin(shown[2]), shown[3]], atol=1e-6)
        shown, seen = whole.step(action)[0], part.step(np.float32([2 * action - 1]))[0]


def velocity_after(force: float, angle: float) -> float:
    env = CartPoleForce()
    env.reset(seed=0)
    env.cartpole.state = np.array([0.0, 0.0, angle, 0.0])
    return float(env.step(np.float32([force]))[0][2])


def test_no_force_leaves_it_to_gravity() -> None:
    assert np.isclose(velocity_after(0.0, np.pi / 2), 0.02 * 9.8 / (0.5 * 4 / 3))
    assert velocity_after(0.0, 0.0) == 0.0


def test_the_force_is_cut_to_one_either_way() -> None:
    assert velocity_after(5.0, 0.0) == velocity_after(1.0, 0.0) == -velocity_after(-1.0, 0.0)
    assert velocity_after(-5.0, 0.0) == velocity_after(-1.0, 0.0) > 2 * velocity_after(-0.4, 0.0) > 0


def test_the_pole_swings_through_the_circle_until_the_time_is_up() -> None:
    env = gym.make("CartPoleForce-v0")
    env.reset(seed=1)
    steps = [env.step(np.float32([0.3])) for _ in range(200)]

    cosines = [obs[0] for obs, *_ in steps]

    assert min(cosines) < -0.99
    assert [terminated or truncated for _, _, terminated, truncated, _ in steps] == [False] * 199 + [True]


def test_it_is_an_environment() -> None:
    check_env(CartPoleForce(), skip_render_check=True)


def test_its_vector_form_moves_as_it_does_and_ends_with_the_time_limit() -> None:
    one, envs = (
        gym.make("CartPoleForce-v0"),
        gym.make_vec("CartPoleForce-v0", 2, vectorization_mode="vector_entry_point"),
    )
    envs.reset(seed=0)
    one.reset(seed=0)
    one.unwrapped.cartpole.state = np.array(envs.unwrapped.cartpoles.state)[:, 1]  # type: ignore[attr-defined]
    for force in (0.3, -0.7, 2.0):
        seen = one.step(np.float32([force]))[0]
        many, *_ = envs.step(np.float32([[0.0], [force]]))
        np.testing.assert_allclose(many[1], seen, atol=1e-6)
    truncated = [envs.step(np.zeros((2, 1), np.float32))[3].all() for _ in range(197)]
    assert truncated == [False] * 196 + [True]


def test_a_pole_that_swings_is_seen_wherever_its_cart_is() -> None:
    env = gym.make("CartPoleForce-v0", render_mode="rgb_array")
    env.reset(seed=0)
    frames = []
    for place in (0.0, 90.0):
        env.unwrapped.cartpole.state = np.array([place, 0.0, 0.5, 0.0])  # type: ignore[attr-defined]
        frames.append(env.render())
    np.testing.assert_array_equal(*frames)
