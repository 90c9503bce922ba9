import hashlib

import numpy as np
import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.vector.resolve_env import resolve_env
from modules.networks import CNN

ACTIONS = {"Asterix": 5, "Breakout": 3, "Freeway": 3, "Seaquest": 6, "SpaceInvaders": 4}
"""By game, the number of actions that have an effect."""

TRACES = {
    "Asterix": "15c295c5b2226e9c",
    "Breakout": "4a814c76f7306476",
    "Freeway": "33c2744dc1e90382",
    "Seaquest": "3e99b49732e603d9",
    "SpaceInvaders": "04ca94da70e067f8",
}
"""Digests of what `test_minatar_package` found equal to the package's games, for where that is not installed."""

every_game = pytest.mark.parametrize("name", ACTIONS)


def game(name: str, **kwargs):
    return resolve_env(f"MinAtar{name}-v1").tensor_env(**kwargs)


def trace(name: str) -> str:
    """Digest of observations, rewards and ends of 16 rows in 200 steps."""
    env, generator, digest = game(name), np.random.default_rng(0), hashlib.sha256()
    state = env.initial(torch.from_numpy(generator.random((16, env.noise_size), np.float32)))
    for _ in range(200):
        noise = torch.from_numpy(generator.random((16, env.noise_size), np.float32))
        action = torch.from_numpy(generator.integers(ACTIONS[name], size=16))
        state, reward, over, _ = env.transition(state, action, noise)
        for part in (env.observation(state), reward, over):
            digest.update(part.numpy().tobytes())
        first = env.initial(noise)
        state = {
            key: torch.where(over.view(-1, *[1] * (leaf.dim() - 1)), first[key], leaf) for key, leaf in state.items()
        }
    return digest.hexdigest()[:16]


@every_game
def test_games_are_those_that_were_compared_with_the_package(name: str) -> None:
    assert trace(name) == TRACES[name]


@every_game
def test_the_minimal_action_set_is_a_setting(name: str) -> None:
    assert game(name).spaces["action_sizes"] == [ACTIONS[name]]
    assert game(name, minimal_actions=False).spaces["action_sizes"] == [6]


def test_sticky_actions_repeat_the_last_executed_one() -> None:
    env = game("Breakout", sticky_action_prob=1.0)
    state = env.initial(torch.rand(4, env.noise_size))

    state, *_ = env.transition(state, torch.full((4,), 1), torch.rand(4, env.noise_size))

    assert state["last_action"].tolist() == [0] * 4 and state["paddle"].tolist() == [4] * 4


@every_game
def test_the_time_limit_truncates(name: str) -> None:
    env = game(name, time_limit=2)
    state = env.initial(torch.rand(1, env.noise_size))
    assert env.min_truncation_step == 2 and game(name).min_truncation_step is None

    ends = []
    for _ in range(2):
        state, _, over, truncated = env.transition(state, torch.tensor([0]), torch.rand(1, env.noise_size))
        ends.append((over.item(), truncated.item()))

    assert ends == [(False, False), (False, True)]


@every_game
def test_arguments_out_of_range_are_one_sentence(name: str) -> None:
    with pytest.raises(ConfigurationError, match="probability from 0 to 1"):
        game(name, sticky_action_prob=1.5)
    with pytest.raises(ConfigurationError, match="at least 1 step"):
        game(name, time_limit=0)


@every_game
def test_the_convolutional_network_takes_the_planes(name: str) -> None:
    env = game(name)
    layout = {"channels_last": False} if name == "Seaquest" else {}  # ten channels, as many as rows and columns

    network = CNN(env.spaces["obs_shape"], channels=(4,), hidden=(8,), **layout)

    features, _ = network(env.observation(env.initial(torch.rand(2, env.noise_size))), {}, torch.ones(2, dtype=bool))
    assert features.shape == (2, 8)


def test_breakout_returns_the_ball_from_the_paddle() -> None:
    env = game("Breakout", sticky_action_prob=0.0)
    state = env.initial(torch.zeros(1, env.noise_size))
    state |= {"x": torch.tensor([4]), "y": torch.tensor([8]), "x_step": torch.tensor([1])}

    after, _, over, _ = env.transition(state, torch.tensor([0]), torch.zeros(1, env.noise_size))

    assert not over and (after["x"].item(), after["y"].item(), after["y_step"].item()) == (5, 8, -1)
