"""Other libraries on our task: the same hyperparameters, and a refusal where there is no counterpart."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from torch import nn

from app.peers.pacer import Pace
from app.peers.ppo import PEERS, task_of
from datamodules.core.errors import ConfigurationError
from modules.networks.cnn import CNN
from modules.networks.mlp import MLP
from modules.ppo.ppo import PPO
from tests.support.small_runs import cartpole_data, snake_data

Network = Callable[[tuple[int, ...]], nn.Module]


class Two:
    """A pace of two iterations."""

    def __init__(self) -> None:
        self.env_steps: list[int] = []

    def tick(self, env_steps: int) -> bool:
        self.env_steps.append(env_steps)
        return len(self.env_steps) < 2


def wide(obs_shape: tuple[int, ...]) -> nn.Module:
    return MLP(obs_shape, hidden=(32, 16), activation="relu")


def test_a_task_holds_the_settings_of_data_and_model() -> None:
    data = cartpole_data()

    task = task_of(data, PPO(data.spaces, network=wide, gamma=0.9, update_epochs=3, num_minibatches=2), "sb3")

    assert (task.env, task.num_envs, task.vector_steps, task.action_type) == ("CartPole-v1", 4, 16, "discrete")
    assert (task.gamma, task.gae_lambda, task.update_epochs, task.num_minibatches) == (0.9, 0.95, 3, 2)
    assert (task.hidden, task.activation) == ((32, 16), nn.ReLU)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"share_torso": True}, "--set model.share_torso=false"),
        ({"normalize_obs": True}, "--set model.normalize_obs=false"),
        ({"target_kl": 0.01}, "--set model.target_kl=null"),
        ({"network": lambda shape: MLP(shape, layer_norm=True)}, "plain MLPs only"),
    ],
)
def test_what_has_no_counterpart_is_refused(settings: dict[str, Any], advice: str) -> None:
    data = cartpole_data()

    with pytest.raises(ConfigurationError, match=advice):
        task_of(data, PPO(data.spaces, **settings), "sb3")


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("policy_lag", 1, "--set data.policy_lag=0"),
        ("backend", "envpool", "not EnvPool's: add `--set data.backend=auto`"),
    ],
)
def test_data_that_a_peer_cannot_have_is_refused(name: str, value: Any, advice: str) -> None:
    data = cartpole_data()
    setattr(data, name, value)

    with pytest.raises(ConfigurationError, match=advice):
        task_of(data, PPO(data.spaces), "sb3")


def test_images_are_refused() -> None:
    data = snake_data(env_kwargs={"dim": 10, "observation": "planes"})

    with pytest.raises(ConfigurationError, match="plain MLPs only"):
        task_of(data, PPO(data.spaces, network=CNN), "skrl")


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "Snake-v0"])
def test_a_peer_trains_the_task_and_ticks_every_iteration(name: str, env: str) -> None:
    pytest.importorskip(PEERS[name].package, reason=f"the peer {name} is not installed: pip install 'leyden[peers]'")
    data = snake_data(num_envs=4, rollout_length=8) if env == "Snake-v0" else cartpole_data(env=env, rollout_length=8)
    task = task_of(data, PPO(data.spaces, update_epochs=2, num_minibatches=2), name)
    pace = Two()

    with pytest.raises(SystemExit) as end:
        PEERS[name].train(task, cast(Pace, pace))

    assert end.value.code == 0
    assert pace.env_steps == [32, 32]
