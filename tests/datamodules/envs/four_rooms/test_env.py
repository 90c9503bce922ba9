import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.envs.four_rooms.env import FourRooms


def at(cell: int, rows: int = 1) -> dict[str, torch.Tensor]:
    cells = torch.full((rows,), cell)
    return {"cell": cells, "step": torch.zeros_like(cells), "success": torch.zeros(rows, dtype=torch.bool)}


def test_walls_stop_and_the_goal_pays_one_and_ends():
    env, sure = FourRooms(goal=1, slip=0.0), torch.full((1, 3), 0.5)

    stayed, nothing, *_ = env.transition(at(0), torch.tensor([0]), sure)
    arrived, reward, terminated, truncated = env.transition(at(0), torch.tensor([1]), sure)

    assert (stayed["cell"].item(), nothing.item()) == (0, 0.0)
    assert (arrived["cell"].item(), reward.item(), terminated.item(), truncated.item()) == (1, 1.0, True, False)
    assert env.info(arrived)["success"].item() == 1.0


def test_a_slip_leads_to_every_free_neighbour_alike():
    env, rows = FourRooms(slip=1 / 3), 30_000
    corner = env.transition(at(0, rows), torch.zeros(rows, dtype=torch.int64), torch.rand(rows, 3))[0]["cell"]

    shares = torch.bincount(corner, minlength=104)[:12].double() / rows

    assert shares[0] == pytest.approx(2 / 3, abs=0.01)
    assert shares[[1, 10]].tolist() == pytest.approx([1 / 6, 1 / 6], abs=0.01)


@pytest.mark.parametrize(("noise", "cell"), [([0.0, 0.9, 0.0], 0), ([0.9, 0.0, 0.0], 1), ([0.9, 0.0, 0.99], 10)])
def test_the_second_uniform_says_whether_a_step_slips_and_the_third_where_to(noise: list[float], cell: int):
    cells = FourRooms(slip=1 / 3).walk(torch.tensor([0]), torch.tensor([0]), torch.tensor([noise]))

    assert cells.tolist() == [cell]


def test_the_walker_starts_anywhere_but_on_the_goal_also_where_it_moved_to():
    env, noise = FourRooms(), torch.rand(20_000, 3)
    assert set(range(104)) - set(env.initial(noise)["cell"].tolist()) == {62}

    env.move_goal_(74)

    assert set(range(104)) - set(env.initial(noise)["cell"].tolist()) == {74}


def test_time_runs_out():
    env = FourRooms(time_limit=2)
    state, *_ = env.transition(at(0), torch.tensor([0]), torch.full((1, 3), 0.9))

    _, _, terminated, truncated = env.transition(state, torch.tensor([0]), torch.full((1, 3), 0.9))

    assert (terminated.item(), truncated.item()) == (False, True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"goal": 104}, "no cell 104 for its goal"),
        ({"start": -1}, "no cell -1 for its start"),
        ({"start": 1.5}, "no cell 1.5 for its start"),
        ({"goal": 5, "start": 5}, "starts in its goal, cell 5"),
        ({"rooms": 1}, "rooms is 1"),
        ({"slip": 2.0}, "slip"),
        ({"time_limit": 0}, "time_limit"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, float], said: str):
    with pytest.raises(ConfigurationError, match=said):
        FourRooms(**wrong)


def test_sixteen_rooms_have_424_cells_and_the_goal_in_the_middle_of_the_last():
    env = FourRooms(rooms=4, start=0)
    state = env.initial(torch.rand(10, 3))

    assert env.spaces["obs_shape"] == (424,) and env.observation(state).argmax(1).tolist() == [0] * 10
    assert env.marks(state, 0) == {381: "G"} and env.plan.cells[381] == (21, 21)


@pytest.mark.parametrize("rooms", [2, 3, 4])
def test_every_size_is_drawn(rooms: int):
    env = FourRooms(rooms=rooms)
    state = env.initial(torch.rand(2, 3))
    side = 6 * rooms + 1

    text = env.render(state, 0, "ansi")

    assert isinstance(text, str) and len(text.splitlines()) == side and (text.count("@"), text.count("G")) == (1, 1)
    assert env.render(state, 1, "rgb_array").shape == (24 * side, 24 * side, 3)
