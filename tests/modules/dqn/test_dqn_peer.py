"""DQN beside Stable-Baselines3's: the same minibatches make the same weights."""

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from datamodules.core.types import MetricVector
from datamodules.replay import ReplayDataModule
from modules.dqn.dqn import DQN
from modules.networks.mlp import MLP
from tests.support.small_runs import trainer

SETTINGS: dict[str, Any] = {"learning_rate": 2.3e-3, "gamma": 0.9, "max_grad_norm": 0.5}


class Beside(DQN):
    """Gives a peer the minibatches that it learns from, and the target copies of as many environment steps."""

    peer: Any

    def run_iteration(self, collected: Any) -> MetricVector | None:
        found = collected.transitions
        columns = (found.obs, found.action, found.next_obs, found.terminated.float(), found.reward.squeeze(-1))
        columns = tuple(column.view(*found.loss_weight.shape, -1) for column in columns)
        batches = zip(*columns, strict=True)
        self.peer.replay_buffer.sample = lambda *_, **__: samples(*next(batches))
        for _ in range(collected.env_steps):
            self.peer._on_step()
        self.peer.train(len(found.action), len(found.action[0]))
        return super().run_iteration(collected)


def samples(*columns: torch.Tensor) -> Any:
    """A minibatch in the peer's form."""
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    return ReplayBufferSamples(*columns)


def peer_of(online: nn.Module) -> Any:
    """Stable-Baselines3's DQN with the weights of a network."""
    import stable_baselines3
    from stable_baselines3.common.logger import Logger

    shape = {"net_arch": [32, 32], "activation_fn": nn.ReLU}
    peer = stable_baselines3.DQN(
        "MlpPolicy", "CartPole-v1", policy_kwargs=shape, buffer_size=9, device="cpu", **SETTINGS
    )
    peer.target_update_interval = 10
    peer.set_logger(Logger(None, []))
    for network in (peer.q_net, peer.q_net_target):
        nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(online.parameters()), network.parameters())
    return peer


@pytest.mark.filterwarnings("ignore")
def test_a_hundred_and_fifty_updates_give_the_weights_of_stable_baselines3(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra peers")
    lightning.seed_everything(1, verbose=False)
    sizes: dict[str, Any] = {
        "num_envs": 1,
        "train_freq": 50,
        "batch_size": 64,
        "replay_ratio": 64,
        "total_env_steps": 150,
    }
    data = ReplayDataModule("CartPole-v1", backend="sync", **sizes)
    model = Beside(
        data.spaces, lambda shape: MLP(shape, (32, 32), "relu"), double_q=False, target_interval=1, **SETTINGS
    )
    model.peer = peer_of(model.online)
    trainer(tmp_path).fit(model, datamodule=data)
    assert model.updates == model.peer._n_updates == 150
    weights = (nn.utils.parameters_to_vector(network.parameters()) for network in (model.online, model.peer.q_net))
    assert_close(*weights, rtol=0, atol=1e-5)
