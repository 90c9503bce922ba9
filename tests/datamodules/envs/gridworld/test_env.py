"""The grid world against its restatement, and what holds in every step."""

from typing import Any

import pytest
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import State
from datamodules.envs.gridworld.env import ACTIONS, PLANES, GridWorld
from datamodules.multi_agent.tensor_vector_env import MultiAgentTensorVectorEnv
from tests.oracles.gridworld import SlowGridWorld

CROWDED = {"size": 7, "mines": 4, "generators": 3, "altars": 3, "capacity": 4, "altar_cost": 2, "wall_density": 0.05}
"""A small map on which agents meet and use objects often."""

KINDS = {2: "mine", 3: "generator", 4: "altar"}


def slow_twin(env: GridWorld, state: State, row: int) -> SlowGridWorld:
    """Return the restatement of one environment in a state at an episode's start."""
    side, end = env.maps.side, int(state["end"][row])
    content = env.maps.content[state["map"][row]].view(side, side).tolist()
    kinds = env._on(torch.device("cpu")).kinds.tolist()

    def named(number: int) -> Any:
        return "free" if number == 0 or number >= end else "wall" if number == 1 else (KINDS[kinds[number]], number - 2)

    cells = [[named(number) for number in line] for line in content]
    agents = [(int(cell) // side, int(cell) % side) for cell in state["position"][row]]
    stock = dict(enumerate(state["stock"][row].tolist()))
    names = ("altar_cost", "capacity", "cooldown", "ore_reward", "battery_reward", "team_reward")
    return SlowGridWorld(
        cells, agents, stock, time_limit=env.min_truncation_step, **{name: getattr(env, name) for name in names}
    )


def started(env: GridWorld, rows: int) -> State:
    return env.initial(torch.rand(rows, env.noise_size))


def random_actions(env: GridWorld, rows: int) -> Tensor:
    return torch.randint(len(ACTIONS), (rows, env.num_agents))


def as_agents(env: GridWorld, value: Tensor) -> Tensor:
    return value.unsqueeze(1) if env.num_agents == 1 else value


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_agents": 1, "altar_hearts": 1},
        {"num_agents": 9, "cooldown": 0},
        {"view": 5, "altar_hearts": 2, "ore_reward": 0.1, "battery_reward": 0.25, "team_reward": 0.5},
        {"start_altars": 6, "start_altar_hearts": 1},
    ],
)
def test_every_step_equals_that_of_the_restatement(changes: dict[str, Any]) -> None:
    env, rows = GridWorld(**{"num_maps": 16, "time_limit": 90, **CROWDED, **changes}), 5
    if "start_altars" in changes:
        env.set_progress(0.5)
    state = started(env, rows)
    twins = [slow_twin(env, state, row) for row in range(rows)]
    used = torch.zeros(3)
    for _ in range(90):
        action = random_actions(env, rows)
        state, reward, terminated, truncated = env.transition(state, action, torch.rand(rows, 2))
        reward, obs = as_agents(env, reward), as_agents(env, env.observation(state))
        for row, twin in enumerate(twins):
            rewards, over = twin.step(action[row].tolist())
            assert reward[row].tolist() == pytest.approx(rewards)
            assert (bool(terminated[row]), bool(truncated[row])) == (False, over)
            shown = [twin.observation(agent, env.view) for agent in range(env.num_agents)]
            assert all((obs[row, agent].numpy() == shown[agent]).all() for agent in range(env.num_agents))
            assert state["hearts"][row].tolist() == twin.hearts
        used += torch.stack([state[name].sum() for name in ("ore_mined", "batteries_made", "hearts")])
    assert bool((used > 0).all()), "objects of every kind were used"
    assert bool(truncated.all())


def test_ore_batteries_and_hearts_are_conserved() -> None:
    env = GridWorld(num_maps=8, altar_hearts=1, **CROWDED)
    state = started(env, 64)
    stocked = state["stock"].sum()
    for _ in range(200):
        state, *_ = env.transition(state, random_actions(env, 64), torch.rand(64, 2))
        paid = state["hearts"].sum() - (stocked - state["stock"].sum())
        assert torch.equal(state["ore_mined"], state["ore"] + state["batteries_made"])
        assert state["batteries_made"].sum() == state["battery"].sum() + env.altar_cost * paid
        assert all(state[name].min() >= 0 and state[name].max() <= env.capacity for name in ("ore", "battery"))
        assert state["stock"].min() >= 0
    assert paid > 0


@pytest.mark.parametrize("num_agents", [2, 12])
def test_agents_stay_on_free_cells_of_their_own_and_move_by_one(num_agents: int) -> None:
    env = GridWorld(num_maps=8, num_agents=num_agents, **CROWDED)
    state = started(env, 64)
    for _ in range(100):
        before = state["position"]
        state, *_ = env.transition(state, random_actions(env, 64), torch.rand(64, 2))
        position = state["position"]
        assert (env._content(state, position) == 0).all(), "neither in walls nor in objects"
        assert (position.sort(1)[0].diff(dim=1) > 0).all(), "two agents are never in one cell"
        assert set((position - before).abs().unique().tolist()) <= {0, 1, env.maps.side}


def test_of_two_agents_that_claim_a_cell_the_one_whose_turn_it_is_moves() -> None:
    env = GridWorld(num_agents=2, size=5, mines=1, generators=1, altars=1, wall_density=0.0, num_maps=4)
    state = started(env, 1)
    clear = torch.zeros(1, env.maps.side**2, dtype=torch.long)
    free = (env._content(state, torch.arange(env.maps.side**2)[None]) == clear)[0].nonzero()[:, 0].tolist()
    west = next(cell for cell in free if {cell + 1, cell + 2} <= {*free})
    winners = []
    for step in (4, 5):
        met = state | {"position": torch.tensor([[west, west + 2]]), "steps": torch.tensor([step])}
        after, *_ = env.transition(met, torch.tensor([[4, 3]]), torch.rand(1, 2))
        winners.append((after["position"] == west + 1)[0].nonzero().item())
    assert winners == [0, 1]


def test_a_seed_repeats_the_episodes_and_another_has_other_maps() -> None:
    kinds = [GridWorld(num_maps=16, map_seed=seed, **CROWDED) for seed in (0, 0, 1)]
    contents = [env.maps.content for env in kinds]
    assert torch.equal(contents[0], contents[1]) and not torch.equal(contents[0], contents[2])
    runs = []
    for _ in range(2):
        envs = MultiAgentTensorVectorEnv(kinds[0], 8, device=torch.device("cpu"), seed=3)
        obs, _ = envs.reset(7)
        steps = [envs.step(torch.full((32,), step % 5)) for step in range(20)]
        runs.append([obs, *(step.obs for step in steps)])
    assert all(torch.equal(one, two) for one, two in zip(*runs, strict=True))


def test_a_curriculum_starts_with_more_altars_and_stocked_ones() -> None:
    env = GridWorld(altars=2, start_altars=8, start_altar_hearts=3, num_maps=8)
    plain = GridWorld(altars=2, num_maps=8)
    altar, stocked = PLANES.index("altar"), PLANES.index("stocked")
    seen = []
    for progress in (0.0, 0.5, 1.0):
        env.set_progress(progress)
        state = started(env, 64)
        assert set((state["end"] - env.num_lasting).tolist()) == {round(8 - 6 * progress)}
        obs = env.observation(state)
        seen.append((obs[:, :, altar].sum(), obs[:, :, stocked].sum()))
    assert seen[0][0] > seen[1][0] > seen[2][0] and seen[0][1] > 0 == seen[2][1]
    assert env.follows_progress and not plain.follows_progress


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"num_agents": 0}, "num_agents 0; choose at least 1"),
        ({"view": 4}, "an odd number"),
        ({"capacity": 2, "altar_cost": 3}, "capacity 2; choose at least 3"),
        ({"wall_density": 0.7}, "a number from 0 to 0.5"),
        ({"start_altars": 2, "altars": 3}, "start_altars 2; choose at least 3"),
        ({"mines": 300}, "at most 254"),
        ({"size": 5, "mines": 20}, "has no room for 28 objects"),
    ],
)
def test_an_argument_out_of_range_is_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        GridWorld(**{"num_maps": 4, **arguments})
