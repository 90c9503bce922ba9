import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.envs.four_rooms import CELLS, MIDDLES, FetchAndDeliver, FourRooms

HALLWAYS = {25: (3, 6), 51: (6, 2), 62: (7, 9), 88: (10, 6)}


def at(cell: int, rows: int = 1) -> dict[str, torch.Tensor]:
    cells = torch.full((rows,), cell)
    return {"cell": cells, "step": torch.zeros_like(cells), "success": torch.zeros(rows, dtype=torch.bool)}


def test_the_plan_has_104_cells_and_the_hallways_of_the_literature():
    assert len(CELLS) == 104
    assert {number: CELLS[number] for number in HALLWAYS} == HALLWAYS


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
    ("wrong", "said"), [({"goal": 104}, "no cell 104"), ({"slip": 2.0}, "slip"), ({"time_limit": 0}, "time_limit")]
)
def test_what_cannot_be_is_refused(wrong: dict[str, float], said: str):
    with pytest.raises(ConfigurationError, match=said):
        FourRooms(**wrong)


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
