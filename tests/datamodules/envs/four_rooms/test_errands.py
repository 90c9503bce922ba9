import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.envs.four_rooms.errands import FetchAndDeliver, KeyDoor
from datamodules.envs.four_rooms.plan import RoomPlan

MIDDLES = RoomPlan(2).middles


def test_an_item_is_taken_by_walking_onto_it_and_pays_only_where_it_is_wanted():
    env, sure = FetchAndDeliver(deliveries=[[0, 1]], slip=0.0), torch.full((1, 4), 0.5)
    left, right = torch.tensor([3]), torch.tensor([1])
    state = env.initial(sure) | {"cell": torch.tensor([MIDDLES[1] - 1])}

    empty, nothing, early, _ = env.transition(state, right, sure)
    taken, unpaid, *_ = env.transition(state | {"cell": torch.tensor([MIDDLES[0] + 1])}, left, sure)
    brought, reward, terminated, _ = env.transition(taken | {"cell": torch.tensor([MIDDLES[1] - 1])}, right, sure)

    assert (empty["carries"].item(), nothing.item(), early.item()) == (False, 0.0, False)
    assert (taken["carries"].item(), unpaid.item()) == (True, 0.0)
    assert (reward.item(), terminated.item(), env.info(brought)["success"].item()) == (1.0, True, 1.0)


def test_every_episode_draws_one_of_the_deliveries_and_shows_it():
    env = FetchAndDeliver(deliveries=[[0, 3], [2, 1]])
    state = env.initial(torch.rand(10_000, 4))
    obs = env.observation(state)

    assert obs.shape == (10_000, 113) and torch.equal(obs.sum(1), torch.full((10_000,), 3.0))
    assert set(zip(state["origin"].tolist(), state["target"].tolist(), strict=True)) == {(0, 3), (2, 1)}
    assert torch.equal(obs[:, 104:108].argmax(1), state["origin"])
    assert torch.equal(obs[:, 108:112].argmax(1), state["target"]) and not obs[:, 112].any()
    assert (state["origin"] == 0).float().mean().item() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("deliveries", [[], [[0, 0]], [[0, 4]], [[0, 1, 2]]])
def test_deliveries_that_cannot_be_are_refused(deliveries: list[list[int]]):
    with pytest.raises(ConfigurationError, match=r"pairs of two different rooms"):
        FetchAndDeliver(deliveries=deliveries)


def test_deliveries_in_sixteen_rooms_have_240_pairs():
    env = FetchAndDeliver(rooms=4)
    state = env.initial(torch.rand(20_000, 4))

    assert env.spaces["obs_shape"] == (424 + 32 + 1,)
    assert len(set(zip(state["origin"].tolist(), state["target"].tolist(), strict=True))) == 240


def test_a_room_is_entered_only_with_the_key():
    env, sure = KeyDoor(slip=0.0), torch.full((1, 3), 0.5)
    doorway = {**env.initial(sure), "cell": torch.tensor([88])}

    shut, *_ = env.transition(doorway, torch.tensor([1]), sure)
    opened, nothing, *_ = env.transition(doorway | {"carries": torch.tensor([True])}, torch.tensor([1]), sure)

    assert (shut["cell"].item(), nothing.item()) == (88, 0.0)
    assert env.plan.room_of[opened["cell"].item()] == 3 and env.info(opened)["success"].item() == 0.0


def test_a_key_is_taken_by_walking_onto_it_and_the_goal_pays_one():
    env, sure = KeyDoor(slip=0.0), torch.full((1, 3), 0.5)
    left = torch.tensor([3])
    state = env.initial(sure) | {"cell": torch.tensor([MIDDLES[1] + 1])}

    taken, nothing, *_ = env.transition(state, left, sure)
    arrived, reward, terminated, _ = env.transition(taken | {"cell": torch.tensor([MIDDLES[3] + 1])}, left, sure)

    assert [env.info(each)["reward_key"].item() for each in (state, taken, arrived)] == [0.0, 1.0, 0.0]
    assert (env.observation(state)[0, -1], env.observation(taken)[0, -1], nothing) == (0.0, 1.0, 0.0)
    assert (reward.item(), terminated.item(), arrived["success"].item()) == (1.0, True, True)
    assert (env.marks(state, 0), env.marks(taken, 0)) == ({MIDDLES[3]: "G", MIDDLES[1]: "I"}, {MIDDLES[3]: "G"})


def test_the_locks_move_with_the_goal():
    env, sure = KeyDoor(slip=0.0), torch.full((1, 3), 0.5)
    env.transition(env.initial(sure), torch.tensor([0]), sure)

    env.move_goal_(MIDDLES[2])
    entered, *_ = env.transition({**env.initial(sure), "cell": torch.tensor([51])}, torch.tensor([2]), sure)

    assert entered["cell"].item() == 51 and env.marks(entered, 0)[MIDDLES[2]] == "G"


@pytest.mark.parametrize("wrong", [{"goal": 88}, {"goal": 1}, {"key": 103}, {"start": 103}])
def test_goals_that_cannot_be_locked_are_refused(wrong: dict[str, int]):
    with pytest.raises(ConfigurationError, match="put the goal into a room without the other two"):
        KeyDoor(**wrong)
