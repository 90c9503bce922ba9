import importlib.util
from collections.abc import Iterator

import pytest
import torch

import datamodules.envs  # noqa: F401  (registers the ids)
from datamodules.vector.make_env import resolve_env
from tests.support.minatar_package import PackageGame

GAMES = {"breakout": "MinAtarBreakout-v1"}
ROWS, STEPS = 24, 400

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("minatar") is None, reason="needs the package: pip install --no-deps minatar"
)


def games(**changes):
    return [pytest.param(name, changes, id=name) for name in GAMES]


def play(name: str, changes: dict, seed: int = 0) -> Iterator[tuple]:
    """Play our rows and as many games of the package with equal actions and uniforms; both sides of every step."""
    make = resolve_env(GAMES[name]).tensor_env
    env = make(minimal_actions=False, **changes)
    generator = torch.Generator().manual_seed(seed)
    theirs = [PackageGame(name, **changes) for _ in range(ROWS)]
    noise = torch.rand(ROWS, env.noise_size, generator=generator)
    state = env.initial(noise)
    for game, draws in zip(theirs, noise, strict=True):
        game.reset(draws)
    for _ in range(STEPS):
        noise = torch.rand(ROWS, env.noise_size, generator=generator)
        action = torch.randint(6, (ROWS,), generator=generator)
        state, reward, over, _ = env.transition(state, action, noise)
        steps = [game.step(int(code), draws) for game, code, draws in zip(theirs, action, noise, strict=True)]
        planes = torch.stack([game.observation() for game in theirs])
        yield env.observation(state), reward, over, planes, torch.tensor(steps)
        if over.any():
            first = env.initial(noise)
            state = {
                key: torch.where(over.view(-1, *[1] * (leaf.dim() - 1)), first[key], leaf)
                for key, leaf in state.items()
            }
            for row in over.nonzero().squeeze(1):
                theirs[int(row)].reset(noise[row])


@pytest.mark.parametrize(("name", "changes"), games(sticky_action_prob=0.1))
def test_every_step_equals_the_packages(name, changes):
    for step, (obs, reward, over, planes, steps) in enumerate(play(name, changes)):
        assert torch.equal(obs, planes), f"observation of step {step}"
        assert torch.equal(reward, steps[:, 0].float()), f"reward of step {step}"
        assert torch.equal(over, steps[:, 1].bool()), f"end of step {step}"
