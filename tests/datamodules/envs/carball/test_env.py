"""The rules of Car-ball, and each of its settings."""

import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import State
from datamodules.envs.carball.env import Carball
from datamodules.envs.carball.rewards import REWARDS
from tests.datamodules.envs.carball.games import STILL, drawn_actions, drawn_state, stepped

FORWARD, BOOST = [2, 1, 1, 1, 1, 0, 0, 0], [2, 1, 1, 1, 1, 0, 1, 0]


def kickoff(env: Carball, rows: int = 1) -> State:
    return env.initial(torch.zeros(rows, env.noise_size))


def rolling_into_goal(env: Carball, side: int) -> State:
    state = kickoff(env)
    return state | {
        "ball_position": torch.tensor([[100.0, 5100.0 * side, 92.75]]),
        "ball_velocity": torch.tensor([[0.0, 1000.0 * side, 0.0]]),
    }


def test_a_goal_ends_the_episode_and_is_paid_to_every_car_of_the_team() -> None:
    env = Carball(mode="2v2", rewards=dict.fromkeys(REWARDS, 0.0) | {"goal": 10.0, "concede": -10.0})

    after, reward, terminated, truncated = stepped(env, rolling_into_goal(env, 1), STILL)

    assert reward.tolist() == [[10.0, 10.0, -10.0, -10.0]]
    assert bool(terminated) and not bool(truncated)
    assert env.info(after)["goals"].tolist() == [[1, 1, 0, 0]] and env.info(after)["conceded"].tolist() == [
        [0, 0, 1, 1]
    ]
    after, reward, terminated, _ = stepped(env, rolling_into_goal(env, -1), STILL)
    assert reward.tolist() == [[-10.0, -10.0, 10.0, 10.0]] and bool(terminated)


def test_a_ball_beside_the_goal_bounces_back() -> None:
    env = Carball()
    state = rolling_into_goal(env, 1)
    state["ball_position"][0, 0] = 1000.0

    after, _, terminated, _ = stepped(env, state, STILL)

    assert not bool(terminated) and float(after["ball_velocity"][0, 1]) == pytest.approx(-600, rel=1e-5)


def test_without_walls_a_ball_or_a_car_outside_ends_the_episode() -> None:
    env, walled = Carball(walls=False), Carball()
    outside = kickoff(env) | {
        "ball_position": torch.tensor([[4090.0, 0, 92.75]]),
        "ball_velocity": torch.tensor([[900.0, 0, 0]]),
    }
    driving = kickoff(env)
    driving["car_position"][0, 0, :2] = torch.tensor([0.0, -5100.0])
    driving["car_velocity"][0, 0, :2] = torch.tensor([0.0, -900.0])

    for state in (outside, driving):
        assert bool(stepped(env, state, STILL)[2]) and not bool(stepped(walled, state, STILL)[2])


def test_it_terminates_without_touches_and_is_truncated_at_the_time_limit() -> None:
    for settings, steps, flags in (
        ({"no_touch_limit": 300}, 300, (True, False)),
        ({"no_touch_limit": None, "time_limit": 400}, 400, (False, True)),
        ({"no_touch_limit": 20, "time_limit": 20}, 20, (True, False)),
    ):
        env = Carball(**settings)
        state, ended = kickoff(env), None
        for number in range(1, steps + 1):
            state, _, *ended = stepped(env, state, STILL)
            assert number == steps or not any(map(bool, ended))
        assert tuple(map(bool, ended)) == flags


def test_boost_accelerates_drains_and_is_filled_by_pads() -> None:
    env = Carball()
    coasting, boosting = kickoff(env), kickoff(env)
    coasting, *_ = stepped(env, coasting, FORWARD)
    boosting, *_ = stepped(env, boosting, BOOST)
    gain = boosting["car_velocity"].norm() - coasting["car_velocity"].norm()
    assert float(gain) == pytest.approx(991.667 * 0.064, rel=1e-4)
    assert float(boosting["boost"]) == pytest.approx(33.3 - 33.3 * 0.064, rel=1e-5)
    assert float(env.info(boosting)["boost_used"]) == pytest.approx(33.3 * 0.064, rel=1e-5)

    for place, boost, refill in (((3584.0, 0.0), 100.0, 10.0), ((0.0, -2816.0), 45.3, 4.0)):
        state = kickoff(env)
        state["car_position"][0, 0, :2] = torch.tensor(place)
        after, *_ = stepped(env, state, STILL)
        assert float(after["boost"]) == pytest.approx(boost, rel=1e-5)
        assert float(after["pads"].max()) == refill and int((after["pads"] > 0).sum()) == 1
        again, *_ = stepped(env, after, STILL)
        assert torch.equal(again["boost"], after["boost"])


def test_touches_are_counted_and_aerial_ones_apart() -> None:
    env = Carball()
    state = kickoff(env)
    state["car_position"][0, 0] = torch.tensor([0.0, 0, 800])
    state["ball_position"][0] = torch.tensor([100.0, 0, 800])

    after, *_ = stepped(env, state, STILL)

    assert [float(env.info(after)[name]) for name in ("touches", "aerial_touches")] == [1, 1]


@pytest.mark.parametrize("name", REWARDS)
def test_every_reward_has_a_weight_that_acts(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    none = Carball(mode="1v1", rewards=dict.fromkeys(REWARDS, 0.0) | {"touch": 1e-9})
    one = Carball(mode="1v1", rewards=dict.fromkeys(REWARDS, 0.0) | {name: 3.0})
    state, action = drawn_state(none, 3000, generator), drawn_actions(none, 3000, generator)
    state["ball_position"][:20] = torch.tensor([0.0, 5100, 200])
    state["ball_velocity"][:20] = torch.tensor([0.0, 1000, 0])
    state["car_position"][20:40], state["car_rotation"][20:40] = torch.tensor([0.0, 0, 17]), torch.zeros(3)
    state["car_velocity"][20:40] = torch.tensor([2300.0, 0, 0])

    plain, paid = (env.transition(state, action, torch.zeros(3000, 1))[1] for env in (none, one))

    assert plain.abs().max() < 1e-6 and paid.abs().max() > 1e-3


def test_team_spirit_shares_the_reward_within_a_team() -> None:
    generator = torch.Generator().manual_seed(0)
    alone, half, whole = (Carball(mode="1v2", team_spirit=share) for share in (0.0, 0.5, 1.0))
    state, action = drawn_state(alone, 50, generator), drawn_actions(alone, 50, generator)

    own, mixed, shared = (env.transition(state, action, torch.zeros(50, 1))[1] for env in (alone, half, whole))

    mean = torch.stack((own[:, 0], own[:, 1:].mean(1), own[:, 1:].mean(1)), 1)
    torch.testing.assert_close(shared, mean)
    torch.testing.assert_close(mixed, (own + mean) / 2)


def test_more_ticks_make_a_longer_step() -> None:
    short, long = Carball(tick_skip=4), Carball(tick_skip=8)

    for env, speed in ((short, 1600 * 0.032), (long, 1600 * 0.064)):
        assert float(stepped(env, kickoff(env), FORWARD)[0]["car_velocity"].norm()) == pytest.approx(speed, rel=1e-4)
    assert (short.ticks_per_step, long.ticks_per_step) == (4, 8)


def test_a_touch_in_a_repeat_ends_the_idling_of_the_repeats_after_it() -> None:
    env = Carball(action_repeat=4, rewards=dict.fromkeys(REWARDS, 0.0) | {"idle": -1.0})
    state = kickoff(env)
    state["idle_steps"] += 200
    state["car_position"][0, 0], state["ball_position"][0] = torch.tensor([0.0, 0, 17]), torch.tensor([0.0, 150, 93])
    state["car_velocity"][0, 0] = torch.tensor([0.0, 2000, 0])

    after, reward, *_ = stepped(env, state, STILL)

    assert float(after["idle_steps"]) == 0 and float(reward) == 0
    away = state | {"ball_position": torch.tensor([[3000.0, 3000, 93]])}
    assert float(stepped(env, away, STILL)[1]) == -4


def test_a_repeated_action_sums_the_rewards_up_to_the_end() -> None:
    once, thrice = Carball(mode="1v1"), Carball(mode="1v1", action_repeat=3)
    generator = torch.Generator().manual_seed(0)
    state, action = drawn_state(once, 500, generator), drawn_actions(once, 500, generator)
    state["idle_steps"].zero_()  # steps of the environment, not of the repeated action, are counted
    state["ball_position"][:100] = torch.tensor([0.0, 5000, 200])
    state["ball_velocity"][:100] = torch.tensor([0.0, 1500, 0])

    total, ended, expected = torch.zeros(500, 2), torch.zeros(500, dtype=torch.bool), state
    for _ in range(3):
        after, reward, _, _ = once.transition(expected, action, torch.zeros(500, 1))
        total += torch.where(ended[:, None], 0.0, reward)
        where = ended.view(-1, 1)
        kept = torch.where(where, expected["ball_position"], after["ball_position"])
        expected = after | {"ball_position": kept}
        ended = ended | (after["scored"] != 0) & ~ended
    result, reward, terminated, _ = thrice.transition(state, action, torch.zeros(500, 1))

    assert ended.any() and torch.equal(ended, terminated & (result["scored"] != 0))
    torch.testing.assert_close(reward[ended], total[ended], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(result["ball_position"][ended], expected["ball_position"][ended])
    torch.testing.assert_close(result["ball_position"][~ended], expected["ball_position"][~ended])
    assert thrice.ticks_per_step == 24 and (result["steps"] == state["steps"] + 1).all()


def test_a_harder_hit_makes_a_faster_ball() -> None:
    for power in (0.5, 1.0):
        env = Carball(hit_power=power)
        state = kickoff(env)
        state["ball_position"][0] = state["car_position"][0, 0] + torch.tensor([50.0, 50, 75])
        state["car_velocity"][0, 0, :2] = torch.tensor([700.0, 700])
        after, *_ = stepped(env, state, STILL)
        speed = after["car_velocity"].norm() * 1.5 * power
        assert float(after["ball_velocity"].norm()) == pytest.approx(float(speed), rel=1e-4)


def test_starts() -> None:
    noise = torch.rand(200, 6 + 3 * 3, generator=torch.Generator().manual_seed(0))
    kickoffs, rolling, aerial = (
        Carball(mode="1v2", start=start).initial(noise) for start in ("kickoff", "random", "aerial")
    )

    assert len({tuple(place) for place in kickoffs["car_position"][:, 0].tolist()}) == 5
    assert (kickoffs["ball_position"][:, :2] == 0).all() and (kickoffs["ball_velocity"] == 0).all()
    assert (kickoffs["car_position"][:, 0, 1] < 0).all() and (kickoffs["car_position"][:, 1:, 1] > 0).all()
    assert (rolling["ball_position"][:, 2] == 92.75).all() and rolling["ball_position"][:, :2].std() > 1000
    assert (aerial["ball_position"][:, 2] >= 600).all()


def test_the_picture_shows_score_cars_and_ball() -> None:
    env = Carball(mode="1v1")
    state, *_ = stepped(env, rolling_into_goal(env, 1), STILL)

    text, picture = env.render(state, 0, "ansi"), env.render(state, 0, "rgb_array")

    assert "blue 1 : 0 orange" in text and all(letter in text.partition("\n")[2] for letter in "BO*")
    assert picture.shape == (460, 560, 3) and picture.dtype == torch.uint8 and len(picture.unique()) > 10


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mode": "3v3"}, "choose from 1v0, 1v1, 1v2, 2v2"),
        ({"rewards": {"goals": 1.0}}, "no reward 'goals'"),
        ({"rewards": {"touch": "a"}}, "reward touch is 'a'"),
        ({"rewards": {"goal": float("nan")}}, "reward goal is nan"),
        ({"rewards": 3}, "rewards are 3"),
        ({"tick_skip": 0}, "tick_skip 0"),
        ({"team_spirit": 2.0}, "team_spirit 2.0; choose a share from 0 to 1.$"),
        ({"hit_power": 0.0}, "Carball has hit_power 0.0; choose a power above 0.$"),
        ({"no_touch_limit": 0}, "no_touch_limit 0"),
        ({"actions": "mixed"}, "discrete, continuous"),
        ({"mode": "1v2", "stages": ["1v1", "2v2"]}, "stage 2v2 in mode 1v2"),
    ],
)
def test_bad_settings_are_refused(settings: dict, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Carball(**settings)
