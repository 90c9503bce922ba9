import importlib.util
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from datamodules.core.types import State
from datamodules.vector.resolve_env import resolve_env
from tests.support.minatar_package import PackageGame

IDS = {
    "asterix": "MinAtarAsterix-v1",
    "breakout": "MinAtarBreakout-v1",
    "freeway": "MinAtarFreeway-v1",
    "seaquest": "MinAtarSeaquest-v1",
    "space_invaders": "MinAtarSpaceInvaders-v1",
}
"""By the package's name of a game, our id."""

GOES_ON = {"asterix": 0.9, "breakout": 0.0, "freeway": 0.0, "seaquest": 0.9, "space_invaders": 0.5}
"""Probability of playing on where a game is over, so that late difficulties are reached; Breakout cannot."""

LATE = {
    "freeway": {"left": ("terminate_timer", 30)},
    "seaquest": {"crew": ("diver_count", 7), "oxygen": ("oxygen", 201)},
    "space_invaders": {"aliens": ("alien_map", 3)},
}
"""By our name of a variable: the package's, and below which number a new value is drawn to reach late states."""

HARDEST = {"spawn_interval": ("e_spawn_speed", 1), "move_interval": ("move_speed", 2)}
"""Seaquest's difficulty after many ramps, in which some of its episodes start."""

ROWS = 8

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("minatar") is None, reason="needs the package: pip install --no-deps minatar"
)
every_game = pytest.mark.parametrize("name", IDS)


def chosen(name: str, state: State, generator: torch.Generator) -> Tensor:
    """Return codes of actions: random ones, which in Breakout mostly follow the ball."""
    action = torch.randint(6, (ROWS,), generator=generator)
    if name != "breakout":
        return action
    ahead = (state["x"] + state["x_step"]).clamp(0, 9) - state["paddle"]
    follows = torch.where(ahead < 0, 1, torch.where(ahead > 0, 3, 0))
    return torch.where(torch.rand(ROWS, generator=generator) < 0.9, follows, action)


def make_late(name: str, state: State, games: list[PackageGame], generator: torch.Generator) -> State:
    """Change a row now and then, alike on both sides, so that rare and late states are reached."""
    if torch.rand(1, generator=generator) > 0.1:
        return state
    row = int(torch.randint(ROWS, (1,), generator=generator))
    state = {key: leaf.clone() for key, leaf in state.items()}
    for ours, (theirs, limit) in LATE.get(name, {}).items():
        value = torch.randint(limit, (1,), generator=generator).item()
        new = torch.arange(100) % 37 <= value if ours == "aliens" else value
        state[ours][row] = new
        setattr(games[row].game, theirs, new.view(10, 10).numpy().astype(float) if ours == "aliens" else value)
    if name == "seaquest" and state["steps"][row] < 5:
        for ours, (theirs, value) in HARDEST.items():
            state[ours][row] = value
            setattr(games[row].game, theirs, value)
    return state


def play(name: str, steps: int, **changes: object) -> Iterator[tuple[State, tuple[Tensor, ...], tuple[Tensor, ...]]]:
    """Play our rows and as many games of the package with equal actions and uniforms.

    Yields: our state, and on both sides observation, reward and whether the game is over.
    """
    env = resolve_env(IDS[name]).tensor_env(minimal_actions=False, **changes)
    generator = torch.Generator().manual_seed(0)
    games = [PackageGame(name, **changes) for _ in range(ROWS)]
    noise = torch.rand(ROWS, env.noise_size, generator=generator)
    state = env.initial(noise)
    for game, draws in zip(games, noise, strict=True):
        game.reset(draws)
    for _ in range(steps):
        state = make_late(name, state, games, generator)
        noise = torch.rand(ROWS, env.noise_size, generator=generator)
        action = chosen(name, state, generator)
        state, reward, over, _ = env.transition(state, action, noise)
        theirs = [game.step(int(code), draws) for game, code, draws in zip(games, action, noise, strict=True)]
        planes = torch.stack([game.observation() for game in games])
        rewards, ends = (torch.tensor(column) for column in zip(*theirs, strict=True))
        yield state, (env.observation(state), reward, over), (planes, rewards, ends)
        resets = over & (torch.rand(ROWS, generator=generator) >= GOES_ON[name])
        first = env.initial(noise)
        state = {
            key: torch.where(resets.view(-1, *[1] * (leaf.dim() - 1)), first[key], leaf) for key, leaf in state.items()
        }
        for row, game in enumerate(games):
            game.reset(noise[row]) if resets[row] else game.go_on()


@every_game
@pytest.mark.parametrize("changes", [{}, {"sticky_action_prob": 0.5}], ids=["default", "sticky"])
def test_every_step_equals_the_packages(name: str, changes: dict[str, float]) -> None:
    rewarded = ended = 0
    for step, (_, ours, theirs) in enumerate(play(name, 200 if changes else 1500, **changes)):
        for what, mine, other in zip(("observation", "reward", "end"), ours, theirs, strict=True):
            assert torch.equal(mine, other.to(mine.dtype)), f"{what} of step {step}"
        rewarded, ended = rewarded + int((ours[1] > 0).sum()), ended + int(ours[2].sum())
    assert changes or (rewarded and ended)


@pytest.mark.parametrize("name", ["asterix", "seaquest", "space_invaders"])
def test_without_ramping_every_step_equals_the_packages(name: str) -> None:
    for _, ours, theirs in play(name, 400, difficulty_ramping=False):
        assert all(torch.equal(mine, other.to(mine.dtype)) for mine, other in zip(ours, theirs, strict=True))
