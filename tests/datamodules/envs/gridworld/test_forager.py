"""The scripted player of the grid world finds shortest paths, and collects more than random play."""

import torch
from torch import Tensor

from datamodules.collect.evaluation import EvaluationDataset
from datamodules.core.protocols import Policy
from datamodules.core.types import PolicyInput
from datamodules.envs.gridworld.env import PLANES
from datamodules.envs.gridworld.forager import Forager, distances
from datamodules.vector.make_env import make_vector_env
from modules.opponents.uniform_policy import UniformPolicy

WORLD = {"num_agents": 4, "size": 9, "view": 5, "time_limit": 120, "num_maps": 16, "altar_cost": 2}


def test_distances_go_around_what_is_closed() -> None:
    picture = ["G.#..", "##.#.", ".....", ".####", "....."]
    rows = torch.tensor([[[" .#G".index(cell) for cell in line] for line in picture]])
    steps = distances(rows == 3, rows != 2)
    assert steps[0, 0].tolist() == [0, 1, torch.inf, torch.inf, torch.inf]
    wide = distances(rows == 3, torch.ones_like(rows, dtype=torch.bool))
    assert wide[0, 4].tolist() == [4, 5, 6, 7, 8]


def seen(**cells: tuple[int, int]) -> Tensor:
    """An observation of five by five cells with one marked cell in each named plane."""
    obs = torch.zeros(1, len(PLANES), 5, 5, dtype=torch.uint8)
    for name, (row, column) in cells.items():
        obs[0, PLANES.index(name), row, column] = 255
    return obs


def action(obs: Tensor, ore: int = 0, battery: int = 0) -> int:
    spaces = make_vector_env("GridWorld-v0", 1, env_kwargs=WORLD).spaces
    forager = Forager(spaces, capacity=10, altar_cost=2)
    obs[:, PLANES.index("ore")], obs[:, PLANES.index("battery")] = ore * 255 // 10, battery * 255 // 10
    return int(forager.act(PolicyInput(obs, forager.initial_state(1), torch.ones(1, dtype=torch.bool)))[0].action)


def test_it_walks_to_what_is_useful_with_what_it_carries() -> None:
    around = {"mine": (2, 0), "generator": (0, 2), "altar": (2, 4)}
    assert action(seen(**around)) == 3, "west, to the mine"
    assert action(seen(**around), ore=10) == 1, "north, to the generator"
    assert action(seen(**around), ore=10, battery=10) == 4, "east, to the altar"
    assert action(seen(**around, busy=(2, 0)), ore=1) == 1, "a busy mine is of no use"
    assert action(seen(altar=(2, 4), stocked=(2, 4))) == 4
    assert action(seen(mine=(2, 0), wall=(2, 1))) in (1, 2), "around the wall"


def hearts(policy: Policy) -> float:
    envs = make_vector_env("GridWorld-v0", 32, env_kwargs=WORLD)
    return float(next(iter(EvaluationDataset(envs, policy, 32, seed=0, greedy=False))).info["hearts"].mean())


def test_it_collects_many_times_the_hearts_of_random_play() -> None:
    spaces = make_vector_env("GridWorld-v0", 1, env_kwargs=WORLD).spaces
    random, forager = hearts(UniformPolicy(spaces)), hearts(Forager(spaces, altar_cost=2))
    print(f"hearts per agent: random {random:.3f}, forager {forager:.3f}")
    assert forager > 5 * random
