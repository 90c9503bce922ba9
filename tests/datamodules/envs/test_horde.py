"""Horde against a plain restatement in numpy, and its events one at a time."""

import re
from typing import Any

import numpy as np
import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.envs.horde import Horde

STILL = torch.ones(1, 25)
"""Uniforms with which no monster steps."""


class Restated:
    """One room, cell by cell: places are (row, column)."""

    def __init__(self, env: Horde, state: dict[str, Any], row: int) -> None:
        self.env = env
        self.agent = self.place(state["cell"][row])
        self.exit, self.monsters = self.place(state["exit"][row]), [self.place(each) for each in state["monsters"][row]]
        self.left = {self.place(each) for each in state["treasures"][row].nonzero()[0]}
        self.taken = 0

    def place(self, cell: Any) -> tuple[int, int]:
        return divmod(int(cell), self.env.size)

    def chase(self, monster: tuple[int, int]) -> tuple[int, int]:
        down, right = self.agent[0] - monster[0], self.agent[1] - monster[1]
        if abs(down) >= abs(right):
            return monster[0] + int(np.sign(down)), monster[1]
        return monster[0], monster[1] + int(np.sign(right))

    def step(self, action: int, noise: np.ndarray) -> tuple[float, bool, float, float]:
        """Return the reward, whether the episode terminates, and the rewards of gathering and fleeing."""
        down, right = [(-1, 0), (0, 1), (1, 0), (0, -1)][action]
        inside = self.env.size - 1
        self.agent = min(max(self.agent[0] + down, 0), inside), min(max(self.agent[1] + right, 0), inside)
        took = self.agent in self.left
        self.left -= {self.agent}
        self.taken += took
        caught = self.agent in self.monsters
        steps = [self.chase(each) if noise[k] < self.env.chase else each for k, each in enumerate(self.monsters)]
        self.monsters = steps
        caught = caught or self.agent in self.monsters
        out = self.agent == self.exit and not caught
        return out * self.taken / self.env.treasures, caught or out, float(took), -float(caught)

    def observation(self) -> np.ndarray:
        middle = self.env.size - 1
        planes = np.zeros((3, 2 * middle + 1, 2 * middle + 1), np.uint8)
        for plane, places in enumerate((self.monsters, self.left, [self.exit])):
            for row, column in places:
                planes[plane, row - self.agent[0] + middle, column - self.agent[1] + middle] = 1
        return planes


@pytest.mark.parametrize("settings", [{}, {"size": 5, "monsters": 2, "treasures": 2, "chase": 0.7}])
def test_whole_episodes_equal_those_of_a_plain_restatement(settings: dict[str, Any]):
    env, rows, draws = Horde(**settings), 40, np.random.default_rng(1)
    state = env.initial(torch.from_numpy(draws.random((rows, env.noise_size), np.float32)))
    rooms = [Restated(env, {name: leaf.numpy() for name, leaf in state.items()}, row) for row in range(rows)]
    playing = set(range(rows))

    for _ in range(60):
        noise, action = draws.random((rows, env.noise_size), np.float32), draws.integers(4, size=rows)
        state, reward, terminated, _ = env.transition(state, torch.from_numpy(action), torch.from_numpy(noise))
        info, planes = env.info(state), env.observation(state).numpy()
        for row in sorted(playing):
            expected = rooms[row].step(int(action[row]), noise[row])
            got = (reward[row], terminated[row], info["reward_gather"][row], info["reward_flee"][row])
            assert tuple(map(float, got)) == pytest.approx(tuple(map(float, expected)))
            assert (planes[row] == rooms[row].observation()).all()
            if expected[1]:
                playing.remove(row)
    assert len(playing) < rows / 2


def test_exit_treasures_and_monsters_have_cells_of_their_own_and_monsters_begin_far_away():
    env = Horde()
    state = env.initial(torch.rand(5000, env.noise_size))

    far = torch.div(state["monsters"], env.size, rounding_mode="floor") + state["monsters"] % env.size
    places = torch.cat([state["exit"].unsqueeze(1), state["monsters"]], 1)
    assert far.min() == env.size and (state["treasures"].sum(1) == env.treasures).all()
    assert not state["treasures"].gather(1, places).any() and not state["treasures"][:, 0].any()
    assert (places.sort(1).values.diff(dim=1) > 0).all() and state["exit"].min() > 0


def small(**places: Any) -> tuple[Horde, dict[str, torch.Tensor]]:
    """Return a room of 5 x 5 with a treasure in cell 1, the exit in cell 2 and a monster in cell 24."""
    env = Horde(size=5, monsters=1, treasures=1, gather_reward=0.25)
    treasures = torch.zeros(1, 25, dtype=torch.bool)
    treasures[0, 1] = True
    given = {"exit": torch.tensor([2]), "monsters": torch.tensor([[24]]), "treasures": treasures}
    return env, env.initial(torch.rand(1, 25)) | given | places


def test_leaving_pays_for_what_was_gathered():
    env, state = small()
    right = torch.tensor([1])

    state, gathered, *_ = env.transition(state, right, STILL)
    took = env.info(state)["reward_gather"].item()
    state, reward, terminated, _ = env.transition(state, right, STILL)

    assert (took, gathered.item(), reward.item(), terminated.item()) == (1.0, 0.25, 1.0, True)
    assert env.info(state)["success"].item() == 1.0 and env.info(state)["reward_gather"].item() == 0.0


def test_a_monster_that_the_agent_runs_into_catches_it_even_at_the_exit():
    env, state = small(exit=torch.tensor([1]), monsters=torch.tensor([[1]]))

    state, reward, terminated, _ = env.transition(state, torch.tensor([1]), STILL)

    assert terminated.item() and reward.item() == 0.25
    info = {name: value.item() for name, value in env.info(state).items()}
    assert info == {"success": 0.0, "caught": 1.0, "reward_gather": 1.0, "reward_flee": -1.0}


def test_a_picture_shows_everything():
    env, state = small()

    lines = str(env.render(state, 0, "ansi")).splitlines()
    picture = env.render(state, 0, "rgb_array")

    assert lines[1] == "#@IG  #" and lines[5] == "#    M#" and len(lines) == 7
    assert isinstance(picture, torch.Tensor) and picture.shape == (7 * 24, 7 * 24, 3)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"size": 3}, "size 3; choose a whole number of at least 4."),
        ({"monsters": 0}, "monsters 0; choose a whole number of at least 1."),
        ({"monsters": 1.5}, "monsters 1.5; choose a whole number of at least 1."),
        ({"treasures": 0}, "treasures 0; choose a whole number of at least 1."),
        ({"treasures": 6}, "monsters + treasures 8; choose less than size, 8."),
        ({"chase": 1.5}, "chase 1.5; choose a probability from 0 to 1."),
        ({"time_limit": 0}, "time_limit 0; choose a whole number of at least 1."),
        ({"gather_reward": float("nan")}, "gather_reward nan; choose a finite number."),
    ],
)
def test_an_argument_out_of_range_is_refused_with_its_rule_alone(settings: dict[str, Any], said: str):
    with pytest.raises(ConfigurationError, match=f"^Horde has {re.escape(said)}$"):
        Horde(**settings)
