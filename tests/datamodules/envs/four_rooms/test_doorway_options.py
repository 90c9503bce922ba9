import torch

from datamodules.envs.four_rooms.doorway_options import DIRECTIONS, GoToDoorway, PrimitiveAction
from datamodules.envs.four_rooms.env import FourRooms
from datamodules.envs.four_rooms.plan import RoomPlan

NOW = torch.zeros(1, dtype=torch.int64)


def test_an_option_walks_to_its_doorway_and_ends_there():
    env, option = FourRooms(rooms=3, slip=0.0, start=0), GoToDoorway("down", rooms=3)
    state, sure = env.initial(torch.rand(1, 3)), torch.full((1, 3), 0.5)

    for age in range(8):
        obs = env.observation(state)
        if option.termination(obs, NOW + age):
            break
        state, *_ = env.transition(state, option.action(obs, NOW + age, NOW), sure)

    assert age == 7 and state["cell"].item() == env.plan.doorways[0][2]


def test_options_start_where_the_room_has_their_doorway():
    obs = torch.eye(104)[RoomPlan(2).middles]

    starts = [GoToDoorway(direction).initiation(obs).tolist() for direction in DIRECTIONS]

    assert starts == [
        [False, False, True, True],
        [True, False, True, False],
        [True, True, False, False],
        [False, True, False, True],
    ]


def test_the_rest_of_an_observation_is_not_read():
    obs = torch.cat([torch.eye(104), torch.full((104, 9), 5.0)], 1)
    option, age = GoToDoorway("left"), torch.zeros(104, dtype=torch.int64)

    assert torch.equal(option.action(obs, age, age), option.action(torch.eye(104), age, age))


def test_a_primitive_action_takes_its_step_once_anywhere():
    option, obs = PrimitiveAction("left"), torch.eye(104)[:3]
    age = torch.zeros(3, dtype=torch.int64)

    assert option.action(obs, age, age).tolist() == [3, 3, 3] and option.initiation(obs).all()
    assert option.termination(obs, age).tolist() == [1, 1, 1] and option.max_duration == 1
