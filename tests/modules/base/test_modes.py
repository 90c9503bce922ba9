"""Networks act, evaluate and give targets in eval mode, and learn in train mode."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn

from datamodules.core.types import PolicyInput
from datamodules.replay import ReplayDataModule
from modules.active_dynamics.active_dynamics import ActiveDynamics
from modules.active_dynamics.latent_model import LatentModel
from modules.base.modes import Modes
from modules.dqn.dqn import DQN
from modules.dqn.pqn import PQN
from modules.exploration.policies import HeldRandomAction
from modules.networks.heads.twin_critic import TwinTorsoCritic
from modules.networks.latent import LinearActions, LinearDecoder, MLPDynamics, MLPEncoder
from modules.ppo.ppo import PPO
from modules.sac.sac import SAC
from modules.sac_options.controller import OptionController
from modules.sac_options.sac_options import SACOptions
from tests.oracles.sac import box_data
from tests.support.dynamics_fixtures import Spring, spring_data
from tests.support.normalizing_networks import Normalizing, tensors_of
from tests.support.replay_fixtures import replay_data
from tests.support.small_runs import cartpole_data, trainer

dropping = partial(Normalizing, dropout=0.5)


def ppo(**changes: Any) -> tuple[PPO, Any]:
    data = cartpole_data(**{"num_envs": 1, "total_env_steps": 64, **changes})
    return PPO(data.spaces, network=dropping, num_minibatches=2, normalize_obs=True), data


def pqn() -> tuple[PQN, Any]:
    data = cartpole_data(num_envs=1, total_env_steps=64)
    return PQN(data.spaces, network=dropping, num_minibatches=2), data


def dqn() -> tuple[DQN, Any]:
    data = replay_data(total_env_steps=192)
    return DQN(data.spaces, network=dropping, target_interval=4), data


def critics() -> dict[str, Any]:
    return {"network": dropping, "critic": partial(TwinTorsoCritic, network=dropping)}


def sac() -> tuple[SAC, ReplayDataModule]:
    data = box_data(total_env_steps=96)
    return SAC(data.spaces, **critics()), data


def options() -> tuple[SACOptions, ReplayDataModule]:
    data = box_data(total_env_steps=96, n_step=1)
    return SACOptions(data.spaces, 2, controller=partial(OptionController, network=dropping), **critics()), data


class Dropping(nn.Dropout):
    """Dropout that notes in which mode it is called."""

    def __init__(self) -> None:
        super().__init__(0.5)
        self.modes: list[bool] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.modes.append(self.training)
        return super().forward(x)


def active_dynamics() -> tuple[ActiveDynamics, Any]:
    """A latent model whose encoder drops units, learned by gradient while it explores."""
    data = spring_data(num_updates=2, batch_size=4)
    encoder, dynamics = MLPEncoder(2, 2, hidden=(8,)), MLPDynamics(2, hidden=(8,), dt=Spring.dt, noise=0.35)
    encoder.body.append(Dropping())
    dynamics.body.append(Dropping())
    model = LatentModel(encoder, LinearDecoder(2, 2), dynamics, LinearActions(2, 2), samples=1, overshooting_steps=3)
    return ActiveDynamics(data.spaces, model, HeldRandomAction(), posterior_refit_interval=1), data


class Watched(Callback):
    """Notes for every network that notes its modes in which of them `act`, `update` and `prepare` call it."""

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.seen: dict[str, set[tuple[str, bool]]] = {"act": set(), "update": set(), "prepare": set()}
        self.networks = {
            name: part for name, part in pl_module.named_modules() if hasattr(part, "modes") and part is not pl_module
        }
        for name in self.seen:
            setattr(pl_module, name, self.watched(name, getattr(pl_module, name)))

    def watched(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            for network in self.networks.values():
                network.modes.clear()
            result = original(*args, **kwargs)
            self.seen[name] |= {(part, mode) for part, network in self.networks.items() for mode in network.modes}
            return result

        return called

    def modes(self, name: str, target: bool = False) -> set[bool]:
        return {mode for part, mode in self.seen[name] if ("target" in part) == target}


@pytest.mark.parametrize("make", [ppo, pqn, dqn, sac, options])
def test_networks_act_in_eval_mode_and_learn_in_train_mode(tmp_path: Path, make: Any) -> None:
    (model, data), watched = make(), Watched()
    run = trainer(tmp_path, watched)
    run.fit(model, datamodule=data)

    assert watched.modes("act") == {False} and watched.modes("update") == {True}
    assert watched.modes("update", target=True) | watched.modes("prepare", target=True) <= {False}
    assert watched.modes("prepare") <= {False}

    run.validate(model, datamodule=data, verbose=False)
    assert watched.modes("act") == {False}


def test_active_dynamics_acts_and_predicts_in_eval_mode_and_learns_in_train_mode(tmp_path: Path) -> None:
    (model, data), watched = active_dynamics(), Watched()
    trainer(tmp_path, watched).fit(model, datamodule=data)
    parts = [part for part in model.modules() if isinstance(part, Dropping)]

    assert len(parts) == 2 and {part for part, _ in watched.seen["update"]} == set(watched.networks)
    assert watched.modes("act") == watched.modes("prepare") == {False} and watched.modes("update") == {True}

    for part in parts:
        part.modes.clear()
    trainer(tmp_path).validate(model, datamodule=data, verbose=False)
    assert [{*part.modes} for part in parts] == [{False}] * 2


def test_acting_after_a_fit_is_deterministic_and_changes_no_buffer(tmp_path: Path) -> None:
    model, data = ppo()
    trainer(tmp_path).fit(model, datamodule=data)
    obs, episode_start, before = torch.randn(1, 4), torch.zeros(1, dtype=torch.bool), tensors_of(model)

    policies = [model.act(PolicyInput(obs, {}, episode_start), greedy=True)[0].extras["policy"] for _ in range(2)]

    assert torch.equal(*policies)
    assert all(torch.equal(value, before[name]) for name, value in tensors_of(model).items())


class Kept(Callback):
    """Keeps what collects."""

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.actor = trainer.datamodule.collector.policy


def test_a_copy_that_collects_ahead_acts_in_eval_mode(tmp_path: Path) -> None:
    (model, data), kept = ppo(policy_lag=1), Kept()
    trainer(tmp_path, kept).fit(model, datamodule=data)

    actor = kept.actor
    assert actor is not model and actor.network.modes and not any(actor.network.modes)
    assert int(actor.network.body[1].num_batches_tracked) > 0


def test_a_checkpoint_is_loaded_in_eval_mode_and_learns_in_train_mode(tmp_path: Path) -> None:
    model, data = dqn()
    run = trainer(tmp_path)
    run.fit(model, datamodule=data)
    run.save_checkpoint(path := tmp_path / "it.ckpt")

    loaded = DQN.load_from_checkpoint(path, trusted=("tests",))
    assert not any(part.training for part in loaded.modules())

    trainer(tmp_path).fit(loaded, datamodule=dqn()[1])
    assert True in loaded.online.torso.modes and True not in loaded.target.torso.modes


def test_a_second_fit_learns_in_train_mode_too(tmp_path: Path) -> None:
    model, data = ppo()
    trainer(tmp_path).fit(model, datamodule=data)
    model.network.modes.clear()
    trainer(tmp_path).fit(model, datamodule=ppo()[1])

    assert set(model.network.modes) == {True, False}


def test_what_was_frozen_in_eval_mode_stays_so(tmp_path: Path) -> None:
    model, data = ppo()
    model.network.body[1].eval()
    trainer(tmp_path).fit(model, datamodule=data)

    assert int(model.network.body[1].num_batches_tracked) == 0
    assert int(model.value_network.body[1].num_batches_tracked) > 0  # type: ignore[union-attr, arg-type]


class KeptInEval(nn.Sequential):
    """Keeps its statistics by a `train` of its own."""

    def train(self, mode: bool = True) -> "KeptInEval":
        super().train(mode)
        self[0].eval()
        return self


def test_a_train_of_the_networks_own_decides_what_learns() -> None:
    module = nn.Sequential(KeptInEval(nn.BatchNorm1d(2), nn.Dropout()))
    modes = Modes(module)
    modes.eval_()

    with modes.train():
        assert module[0][1].training and not module[0][0].training  # type: ignore[index, union-attr]
    assert not any(part.training for part in module[0].modules()) and module.training
