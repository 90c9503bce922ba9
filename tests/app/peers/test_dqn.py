"""Other libraries' DQN on our task: the same hyperparameters, and a refusal where there is no counterpart."""

from typing import Any, cast

import pytest
from gymnasium.wrappers import FlattenObservation
from torch import nn

from app.peers.dqn import DQNTask
from app.peers.pacer import Pace
from app.peers.ppo import PEERS, task_of
from datamodules.core.errors import ConfigurationError
from datamodules.replay import ReplayDataModule
from modules.dqn.dqn import DQN
from modules.networks.heads.q_value import C51Head
from tests.app.peers.test_ppo import Two, wide


def cartpole_replay(**changes: Any) -> ReplayDataModule:
    settings: dict[str, Any] = {
        "env": "CartPole-v1",
        "num_envs": 4,
        "train_freq": 8,
        "batch_size": 16,
        "replay_ratio": 1,
    }
    return ReplayDataModule(**{**settings, "capacity": 1000, "learning_starts": 8, **changes})


def q_task(**changes: Any) -> DQNTask:
    data = cartpole_replay()
    return cast(DQNTask, task_of(data, DQN(data.spaces, network=wide, double_q=False, **changes), "sb3"))


def test_a_task_holds_the_settings_of_data_and_model() -> None:
    task = q_task(gamma=0.9)

    assert (task.env, task.env_steps, task.batch_size, task.updates, task.capacity) == ("CartPole-v1", 32, 16, 2, 1000)
    assert (task.gamma, task.hidden, task.activation) == (0.9, (32, 16), nn.ReLU)


@pytest.mark.parametrize(
    ("model", "data", "advice"),
    [
        ({"double_q": True}, {}, "--set model.double_q=false"),
        ({"tau": 0.1}, {}, "--set model.tau=null"),
        ({"head": C51Head}, {}, "--set model.head=modules.networks.QHead"),
        ({}, {"n_step": 3}, "--set data.n_step=1"),
        ({}, {"priority_alpha": 0.5}, "--set data.priority_alpha=0"),
        ({}, {"wrappers": [FlattenObservation]}, "--set data.wrappers=null"),
        ({}, {"train_wrappers": [FlattenObservation]}, "--set data.train_wrappers=null"),
    ],
)
def test_what_has_no_counterpart_is_refused(model: dict[str, Any], data: dict[str, Any], advice: str) -> None:
    replay = cartpole_replay(**data)

    with pytest.raises(ConfigurationError, match=advice):
        task_of(replay, DQN(replay.spaces, **{"double_q": False, **model}), "sb3")


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_trains_the_task_and_ticks_every_iteration(name: str) -> None:
    pytest.importorskip(PEERS[name].package, reason=f"the peer {name} is not installed: pip install 'leyden[peers]'")
    pace = Two()

    with pytest.raises(SystemExit) as end:
        PEERS[name].train(q_task(), cast(Pace, pace))

    assert end.value.code == 0
    assert pace.env_steps == [32, 32]
