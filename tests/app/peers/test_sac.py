"""Other libraries' SAC on our task: the same hyperparameters, and a refusal where there is no counterpart."""

from typing import Any, cast

import pytest
from torch import nn

from app.peers.pacer import Pace
from app.peers.ppo import PEERS, task_of
from app.peers.sac import SACTask
from datamodules.core.errors import ConfigurationError
from datamodules.replay import ReplayDataModule
from modules.networks import MLP
from modules.networks.heads.twin_critic import TwinMLP
from modules.sac.sac import SAC
from tests.app.peers.test_ppo import Two


def pendulum_replay(**changes: Any) -> ReplayDataModule:
    settings: dict[str, Any] = {
        "env": "Pendulum-v1",
        "num_envs": 2,
        "train_freq": 2,
        "batch_size": 16,
        "replay_ratio": 8,
    }
    return ReplayDataModule(**{**settings, "capacity": 1000, "learning_starts": 8, **changes})


def small(data: ReplayDataModule, **changes: Any) -> SAC:
    networks: dict[str, Any] = {"network": lambda shape: MLP(shape, (32, 16), "relu")}
    networks["critic"] = lambda *shape: TwinMLP(*shape, hidden=(32, 16))
    return SAC(data.spaces, **{**networks, **changes})


def sac_task(**changes: Any) -> SACTask:
    data = pendulum_replay()
    return cast(SACTask, task_of(data, small(data, **changes), "sb3"))


def test_a_task_holds_the_settings_of_data_and_model() -> None:
    task = sac_task(gamma=0.9, init_temperature=0.5)

    assert (task.env, task.env_steps, task.batch_size, task.updates) == ("Pendulum-v1", 4, 16, 2)
    assert (task.gamma, task.hidden, task.activation, task.init_temperature) == (
        0.9,
        (32, 16),
        nn.ReLU,
        pytest.approx(0.5),
    )


@pytest.mark.parametrize(
    ("model", "data", "advice"),
    [
        ({"normalize_obs": True}, {}, "--set model.normalize_obs=false"),
        ({"noise_hold": 2}, {}, "--set model.noise_hold=1"),
        ({"max_grad_norm": 1.0}, {}, "--set model.max_grad_norm=null"),
        ({"critic_learning_rate": 1.0}, {}, "--set model.critic_learning_rate=null"),
        ({}, {"n_step": 3}, "--set data.n_step=1"),
        ({"critic": TwinMLP}, {}, "plain MLPs of the same widths"),
        ({}, {"env": "CartPole-v1"}, "Box actions only"),
    ],
)
def test_what_has_no_counterpart_is_refused(model: dict[str, Any], data: dict[str, Any], advice: str) -> None:
    replay = pendulum_replay(**data)

    with pytest.raises(ConfigurationError, match=advice):
        task_of(replay, small(replay, **model), "sb3")


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_trains_the_task_and_ticks_every_iteration(name: str) -> None:
    pytest.importorskip(PEERS[name].package, reason=f"the peer {name} is not installed: pip install 'leyden[peers]'")
    pace = Two()

    with pytest.raises(SystemExit) as end:
        PEERS[name].train(sac_task(), cast(Pace, pace))

    assert end.value.code == 0
