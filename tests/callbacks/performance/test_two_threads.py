"""Runs on two torch threads, whose number the thread tuner measures; all other tests compute on one."""

from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from callbacks.performance.thread_tuner import ThreadTuner
from datamodules.base import EnvDataModule
from datamodules.replay import ReplayDataModule
from datamodules.rollout import RolloutDataModule
from modules.dqn.dqn import DQN
from modules.networks.cnn import CNN
from modules.networks.heads.recurrent_critic import RecurrentCritic
from modules.networks.mlp import MLP
from modules.networks.recurrent import GRU
from modules.ppo.ppo import PPO
from modules.sac.sac import SAC
from tests.support.small_runs import trainer

OBSERVATIONS: dict[str, tuple[str, Any]] = {
    "flat": ("CartPole-v1", partial(MLP, hidden=(8,))),
    "parts": ("tests.support.parts_env.TensorReach", None),
    "image": ("tests.support.image_envs.Grid", partial(CNN, channels=(4,), hidden=(8,))),
    "recurrent": ("TMaze-v0", partial(GRU, hidden=8, encoder=(8,))),
    "agents": ("tests.support.parallel_env.RelayTensors", partial(MLP, hidden=(8,))),
}
"""Environment and network of every kind of observation; None: the algorithm's own network."""


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let torch and the tuner use two threads."""
    monkeypatch.setattr("callbacks.performance.thread_tuner.most_threads", lambda ranks: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def parts(algorithm: type, shown: str) -> tuple[EnvDataModule, Any]:
    """Data and model of a run of two iterations."""
    env, network = OBSERVATIONS[shown]
    settings: dict[str, Any] = {} if network is None else {"network": network}
    sizes: dict[str, Any] = {"env": env, "num_envs": 4, "eval_episodes": 2}
    if algorithm is PPO:
        data: EnvDataModule = RolloutDataModule(rollout_length=4, total_env_steps=32, **sizes)
        more = {"share_torso": True} if shown == "recurrent" else {}
        return data, PPO(data.spaces, update_epochs=1, num_minibatches=2, **settings, **more)
    sequences = {"sequence_length": 4, "burn_in": 1} if shown == "recurrent" else {}
    replay: dict[str, Any] = {
        "capacity": 64,
        "batch_size": 8,
        "train_freq": 4,
        "replay_ratio": 1.5,
        "learning_starts": 16,
    }
    data = ReplayDataModule(total_env_steps=64, **sizes, **replay, **sequences)
    if algorithm is SAC and shown == "recurrent":
        settings["critic"] = partial(RecurrentCritic, network=network, hidden=(8,))
    return data, algorithm(data.spaces, **settings)


@pytest.mark.parametrize("shown", OBSERVATIONS)
@pytest.mark.parametrize("algorithm", [PPO, DQN, SAC])
def test_a_run_measures_its_threads_and_learns(
    algorithm: type, shown: str, two_threads: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lightning.seed_everything(1, verbose=False)
    data, model = parts(algorithm, shown)
    before = torch.cat([each.detach().flatten().clone() for each in model.parameters()])

    with caplog.at_level("INFO"):
        trainer(tmp_path, ThreadTuner()).fit(model, datamodule=data)

    after = torch.cat([each.detach().flatten() for each in model.parameters()])
    assert (before != after).any() and bool(after.isfinite().all())
    (line,) = [message for message in caplog.messages if message.startswith("Torch computes on")]
    assert " ms on 1, " in line and line.endswith(" ms on 2.")
