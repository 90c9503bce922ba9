"""Stages of a curriculum: a game of a stage is that of its mode, and absent cars do nothing."""

import pytest
import torch

from datamodules.envs.carball.env import Carball
from datamodules.envs.carball.field import PARKED
from tests.datamodules.envs.carball.games import drawn_actions

STAGES = ["1v1", "1v2", "2v2"]
PRESENT = {"1v1": [0, 2], "1v2": [0, 2, 3], "2v2": [0, 1, 2, 3]}


def at_stage(stage: str, **settings: object) -> Carball:
    env = Carball(mode="2v2", stages=STAGES, team_spirit=0.3, **settings)
    env.set_stage(STAGES.index(stage))
    return env


@pytest.mark.parametrize("stage", ["1v1", "2v2"])
def test_a_stage_is_played_like_its_mode(stage: str) -> None:
    whole, alone = at_stage(stage), Carball(mode=stage, team_spirit=0.3)
    generator, noise, cars = torch.Generator().manual_seed(0), torch.rand(20, 1), PRESENT[stage]
    state, other = whole.initial(noise), alone.initial(noise)

    for _ in range(60):
        action = drawn_actions(whole, 20, generator)
        state, reward, *flags = whole.transition(state, action, noise)
        other, expected, *others = alone.transition(other, action[:, cars], noise)
        torch.testing.assert_close(reward[:, cars], expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(whole.observation(state)[:, cars], alone.observation(other), rtol=1e-4, atol=1e-4)
        assert all(torch.equal(mine, its) for mine, its in zip(flags, others, strict=True))


@pytest.mark.parametrize("stage", STAGES)
def test_absent_cars_do_nothing(stage: str) -> None:
    env, generator = at_stage(stage, start="random"), torch.Generator().manual_seed(0)
    state = env.initial(torch.rand(50, env.noise_size, generator=generator))
    absent = [car for car in range(4) if car not in PRESENT[stage]]

    assert env.alive is not None and env.alive(state)[0].nonzero()[:, 0].tolist() == PRESENT[stage]
    for _ in range(40):
        state, *_ = env.transition(state, drawn_actions(env, 50, generator), torch.zeros(50, 1))
    assert (state["car_position"][:, absent] == torch.tensor(PARKED)).all()
    assert not state["touches"][:, absent].any() and not state["boost_used"][:, absent].any()
    assert not env.observation(state)[:, absent].any()


def test_a_new_stage_begins_with_the_next_episode() -> None:
    env = at_stage("1v1")
    state = env.initial(torch.zeros(1, 1))

    env.set_stage(2)

    after, *_ = env.transition(state, torch.ones(1, 4, 8, dtype=torch.long), torch.zeros(1, 1))
    assert int(after["present"].sum()) == 2 and int(env.initial(torch.zeros(1, 1))["present"].sum()) == 4


def test_pictures_show_the_cars_of_the_stage() -> None:
    text = {}
    for stage in STAGES:
        env = at_stage(stage)
        text[stage] = str(env.render(env.initial(torch.full((1, 1), 0.1)), 0, "ansi")).partition("\n")[2]
        env.render(env.initial(torch.zeros(1, 1)), 0, "rgb_array")

    assert [(text[stage].count("B"), text[stage].count("O")) for stage in STAGES] == [(1, 1), (1, 2), (2, 2)]


def test_without_stages_all_cars_act() -> None:
    env = Carball(mode="2v2")

    assert env.alive is None and "present" not in env.initial(torch.zeros(1, 1))
