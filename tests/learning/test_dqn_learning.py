"""DQN's shipped configs reach their references, through the real command line, judged by the last weights."""

from pathlib import Path

import pytest

from tests.learning.test_ppo_learning import must_reach

pytestmark = pytest.mark.slow


def test_cartpole_with_the_settings_of_the_zoo(tmp_path: Path) -> None:
    must_reach(tmp_path, "dqn_cartpole.yaml", 450, needed=3)


@pytest.mark.timeout(3600)
def test_cartpole_without_velocities_from_sequences(tmp_path: Path) -> None:
    must_reach(tmp_path, "dqn_cartpole_memory.yaml", 400, needed=3)


def test_acrobot(tmp_path: Path) -> None:
    must_reach(tmp_path, "dqn_acrobot.yaml", -100)


def test_lunarlander(tmp_path: Path) -> None:
    pytest.importorskip("Box2D", reason="needs the extra box2d")

    must_reach(tmp_path, "dqn_lunarlander.yaml", 100)


def test_snake_from_features(tmp_path: Path) -> None:
    features = ("--data.env_kwargs={dim: 10, observation: features}", "--model.network=modules.networks.MLP")
    sizes = ("--model.network.hidden=[256, 256]", "--model.network.activation=relu", "--data.total_env_steps=1_000_000")
    fewer = (
        "--data.num_envs=64",
        "--data.batch_size=512",
        "--data.capacity=200_000",
        "--model.epsilon_decay_steps=100_000",
    )

    must_reach(tmp_path, "dqn_snake.yaml", 10, *features, *sizes, *fewer, of="food_mean")
