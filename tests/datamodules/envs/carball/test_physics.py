"""The motion of cars and ball: equal to a restatement in float64, and as physics demands."""

import numpy as np
import pytest
import torch

from datamodules.envs.carball.env import Carball
from datamodules.envs.carball.physics import Ball, Cars, axes, hit_ball, move_ball
from tests.datamodules.envs.carball.games import STILL, as_game, controls, drawn_actions, drawn_state, stepped
from tests.oracles.carball import observed, step

CLOSE = {"rtol": 2e-4, "atol": 2e-2}
"""Of positions, velocities and rewards in float32 against float64."""

every_mode = pytest.mark.parametrize("mode", ["1v0", "1v1", "1v2", "2v2"])


@every_mode
@pytest.mark.parametrize("actions", ["discrete", "continuous"])
@pytest.mark.parametrize("walls", [True, False])
def test_a_step_equals_the_restatement(mode: str, actions: str, walls: bool) -> None:
    env, generator = Carball(mode=mode, actions=actions, walls=walls), torch.Generator().manual_seed(0)
    state, action = drawn_state(env, 100, generator), drawn_actions(env, 100, generator)
    if not walls:
        state["car_position"][:30, 0, 0] = 4090.0

    after, reward, terminated, _ = env.transition(state, action, torch.zeros(100, 1))

    for row in range(100):
        game, paid, winner, outside = step(
            as_game(env, state, row), controls(action[row], env), env.seconds, env.rewards, walls
        )
        mine = as_game(env, after, row)
        np.testing.assert_allclose(mine.ball, game.ball, **CLOSE)
        np.testing.assert_allclose(mine.ball_velocity, game.ball_velocity, **CLOSE)
        np.testing.assert_allclose(mine.pads, game.pads, **CLOSE)
        for car, other in zip(mine.cars, game.cars, strict=True):
            np.testing.assert_allclose(car.position, other.position, **CLOSE)
            np.testing.assert_allclose(car.velocity, other.velocity, **CLOSE)
            turns = np.array([car.yaw - other.yaw, car.pitch - other.pitch, car.roll - other.roll])
            np.testing.assert_allclose(np.cos(turns), 1, atol=1e-6)
            assert car.boost == pytest.approx(other.boost, abs=1e-3) and car.idle == other.idle
        np.testing.assert_allclose(reward[row].numpy().reshape(-1), paid, rtol=1e-3, atol=1e-3)
        ended = winner != 0 or (outside and not walls) or min(car.idle for car in game.cars) >= 300
        assert float(after["scored"][row]) == winner and bool(terminated[row]) == ended


@every_mode
def test_observations_equal_the_restatement(mode: str) -> None:
    env, generator = Carball(mode=mode), torch.Generator().manual_seed(1)
    state = drawn_state(env, 50, generator)

    obs = env.observation(state).view(50, env.cars, 180)

    for row in range(50):
        game = as_game(env, state, row)
        for number in range(env.cars):
            np.testing.assert_allclose(obs[row, number].numpy(), observed(game, number), rtol=1e-4, atol=1e-4)


def test_a_free_ball_follows_the_parabola_of_gravity() -> None:
    ball = Ball(torch.tensor([[0.0, 0, 1500]]), torch.tensor([[300.0, -200, 100]]))
    for _ in range(10):
        ball = move_ball(ball, 0.064, walls=True)

    seconds = 0.64
    expected = torch.tensor([[300 * seconds, -200 * seconds, 1500 + 100 * seconds - 325 * seconds**2]])
    torch.testing.assert_close(ball.position, expected, rtol=1e-5, atol=1e-2)
    torch.testing.assert_close(ball.velocity[0, 2], torch.tensor(100 - 650 * seconds))


def test_a_car_in_the_air_follows_the_parabola_of_gravity() -> None:
    env = Carball()
    state = env.initial(torch.zeros(1, 1))
    state["car_position"][:, 0] = torch.tensor([2000.0, 0, 1500])
    state["car_velocity"][:, 0] = torch.tensor([100.0, 50, 200])
    for _ in range(10):
        state, *_ = stepped(env, state, STILL)

    expected = torch.tensor([2064.0, 32.0, 1500 + 200 * 0.64 - 325 * 0.64**2])
    torch.testing.assert_close(state["car_position"][0, 0], expected, rtol=1e-5, atol=1e-2)


def test_a_bounce_never_adds_energy_and_keeps_36_percent_of_that_of_the_impact() -> None:
    generator = torch.Generator().manual_seed(0)
    height = 100 + 1800 * torch.rand(500, 1, generator=generator)
    flat = torch.rand(500, 2, generator=generator) * 2 - 1
    ball = Ball(torch.cat((flat * 4000, height), 1), 3000 * (2 * torch.rand(500, 3, generator=generator) - 1))
    for _ in range(300):
        before = 650 * ball.position[:, 2] + ball.velocity.square().sum(1) / 2
        ball = move_ball(ball, 0.064, walls=True)
        after = 650 * ball.position[:, 2] + ball.velocity.square().sum(1) / 2
        assert (after <= before * (1 + 1e-5) + 1).all()

    falling = Ball(torch.tensor([[0.0, 0, 100]]), torch.tensor([[0.0, 0, -1000]]))
    bounced = move_ball(falling, 0.064, walls=True)
    impact = 1000**2 + 2 * 650 * (100 - 92.75)
    assert bounced.velocity[0, 2] ** 2 == pytest.approx(0.36 * impact, rel=1e-4)


def test_a_ball_that_lies_still_stays() -> None:
    resting = Ball(torch.tensor([[10.0, 20, 92.75]]), torch.zeros(1, 3))
    ball = resting
    for _ in range(50):
        ball = move_ball(ball, 0.064, walls=True)

    assert torch.equal(ball.position, resting.position) and ball.velocity.abs().max() < 0.1


@pytest.mark.parametrize("actions", ["discrete", "continuous"])
def test_speeds_boost_and_places_stay_within_their_limits(actions: str) -> None:
    env, generator = Carball(mode="2v2", actions=actions, hit_power=3.0), torch.Generator().manual_seed(2)
    state, playing = drawn_state(env, 200, generator), torch.ones(200, dtype=torch.bool)
    for _ in range(200):
        state, _, terminated, _ = env.transition(state, drawn_actions(env, 200, generator), torch.zeros(200, 1))
        playing &= ~terminated
        assert env.observation(state)[playing].abs().max() <= 5
        assert (state["boost"] >= 0).all() and (state["boost"] <= 100).all()
        assert (state["car_velocity"].norm(dim=2) <= 2300.1).all()
        assert (state["ball_velocity"].norm(dim=1) <= 6000.1).all()
        assert (state["car_position"][..., 2] >= 17).all() and (state["ball_position"][:, 2] >= 92.7).all()
        assert (state["car_position"][..., :2].abs() <= torch.tensor([4096.0, 5120.0])).all()


def test_mirrored_teams_observe_the_same() -> None:
    env, generator = Carball(mode="2v2"), torch.Generator().manual_seed(3)
    state = drawn_state(env, 64, generator)
    turn, yaw = torch.tensor([-1.0, -1, 1]), torch.tensor([torch.pi, 0, 0])
    swap = [2, 3, 0, 1]
    mirrored = state | {
        "car_position": state["car_position"][:, swap] * turn,
        "car_velocity": state["car_velocity"][:, swap] * turn,
        "car_rotation": state["car_rotation"][:, swap] + yaw,
        "ball_position": state["ball_position"] * turn,
        "ball_velocity": state["ball_velocity"] * turn,
        "pads": state["pads"].roll(17, 1),
        **{name: state[name][:, swap] for name in ("boost", "idle_steps", "last_action")},
    }

    torch.testing.assert_close(env.observation(mirrored)[:, swap], env.observation(state), rtol=1e-4, atol=1e-5)
    action = drawn_actions(env, 64, generator)
    paid = env.transition(state, action, torch.zeros(64, 1))[1]
    mirrored_paid = env.transition(mirrored, action[:, swap], torch.zeros(64, 1))[1]
    torch.testing.assert_close(mirrored_paid[:, swap], paid, rtol=1e-3, atol=1e-3)


def test_the_axes_of_a_car_are_orthonormal_and_right_handed() -> None:
    forward, left, up = axes(torch.randn(100, 2, 3, generator=torch.Generator().manual_seed(0)))

    frame = torch.stack((forward, left, up), -2)
    torch.testing.assert_close(frame @ frame.mT, torch.eye(3).expand(100, 2, 3, 3), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.linalg.cross(forward, left), up, rtol=1e-5, atol=1e-5)


def test_a_hit_gives_the_ball_one_and_a_half_times_the_velocity_of_the_car() -> None:
    cars = Cars(
        torch.tensor([[[0.0, 0, 17]]]), torch.tensor([[[1000.0, 500, 0]]]), torch.zeros(1, 1, 3), torch.ones(1, 1)
    )
    for away, touched in ((150.0, True), (205.0, False)):
        ball = Ball(torch.tensor([[away, 0, 17.0]]), torch.zeros(1, 3))
        struck, touches = hit_ball(ball, cars, hit_power=1.0)
        assert bool(touches) == touched
        assert struck.velocity.tolist() == ([[1500.0, 750.0, 0.0]] if touched else [[0.0, 0.0, 0.0]])
