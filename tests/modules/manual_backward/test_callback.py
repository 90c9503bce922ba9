"""The callback installs hand-written methods only where they compute the same, and restores the algorithm's own."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch.optim import Adam

from datamodules.core.types import PolicyInput
from modules.dqn.dqn import DQN
from modules.networks.heads.q_value import C51Head
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.ppo.ppo import PPO
from modules.sac.sac import SAC
from tests.oracles.sac import box_data, choice_data, small_sac
from tests.support.manual_backward_cases import make_ppo, ppo_batch, replace_methods
from tests.support.replay_fixtures import replay_data, small_dqn
from tests.support.small_runs import Told, cartpole_data, small_ppo, snake_data, trainer

RELU = partial(MLP, hidden=(16, 8), activation="relu")
SHORT: dict[str, Callable[[], Any]] = {
    "ppo": lambda: cartpole_data(total_env_steps=128),
    "dqn": lambda: replay_data(total_env_steps=128),
    "sac": lambda: box_data(total_env_steps=48),
}
MODELS: dict[str, Callable[..., Any]] = {"ppo": small_ppo, "dqn": partial(small_dqn, network=RELU), "sac": small_sac}


class PlainDQN(DQN):
    """Another class, which may have another loss."""


class PlainPPO(PPO):
    """Another class, which may have another loss."""


class PlainSAC(SAC):
    """Another class, which may have other losses."""


def grouped(parameters: Any) -> Adam:
    """One group for each parameter."""
    return Adam([{"params": [each]} for each in parameters])


def fitted(root: Path, name: str, *callbacks: Callback, data: Any = None, **settings: Any) -> tuple[Any, bool]:
    """A short run's model, and whether methods were replaced in it."""
    lightning.seed_everything(1, verbose=False)
    told, data = Told(), data or SHORT[name]()
    model = MODELS[name](data, **settings)
    trainer(root, *callbacks, told).fit(model, datamodule=data)
    return model, told.manual_backward


UNSUPPORTED: dict[str, tuple[str, dict[str, Any]]] = {
    "ppo, elu": ("ppo", {"network": partial(MLP, hidden=(8,), activation="elu")}),
    "ppo, layer norm": ("ppo", {"network": partial(MLP, hidden=(8,), layer_norm=True)}),
    "ppo, groups of parameters": ("ppo", {"optimizer": grouped}),
    "dqn, tanh": ("dqn", {"network": MLP}),
    "dqn, layer norm": ("dqn", {"network": partial(RELU, layer_norm=True)}),
    "dqn, scaled": ("dqn", {"network": partial(RELU, scale=0.5)}),
    "dqn, a distribution": ("dqn", {"head": C51Head}),
    "dqn, groups of parameters": ("dqn", {"optimizer": grouped}),
    "dqn, a subclass": ("dqn", {"kind": PlainDQN}),
    "sac, tanh": ("sac", {"network": partial(MLP, hidden=(8,), activation="tanh")}),
    "sac, layer norm": ("sac", {"network": partial(MLP, hidden=(8,), activation="relu", layer_norm=True)}),
    "sac, critics of silu": ("sac", {"critic": partial(TwinMLP, hidden=(8,), activation="silu")}),
    "sac, groups of parameters": ("sac", {"optimizer": grouped}),
    "sac, a subclass": ("sac", {"kind": PlainSAC}),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_an_unsupported_model_keeps_its_own_methods(tmp_path: Path, case: str) -> None:
    name, settings = UNSUPPORTED[case]

    assert not fitted(tmp_path, name, **settings)[1]


def test_discrete_sac_keeps_its_own_methods(tmp_path: Path) -> None:
    assert not fitted(tmp_path, "sac", data=choice_data(total_env_steps=48))[1]


def test_a_subclass_of_ppo_keeps_its_own_methods(tmp_path: Path) -> None:
    told, data = Told(), SHORT["ppo"]()

    trainer(tmp_path, told).fit(PlainPPO(data.spaces, num_minibatches=2), datamodule=data)

    assert not told.manual_backward


@pytest.mark.parametrize("name", MODELS)
def test_a_supported_model_has_its_own_methods_before_and_after_the_run(tmp_path: Path, name: str) -> None:
    model, replaced = fitted(tmp_path, name)

    assert replaced and not model.replaced_methods
    assert not [each for each in vars(model) if callable(getattr(type(model), each, None))]


class Failing(Callback):
    """Ends the run with an error."""

    def on_train_batch_end(self, *_: Any) -> None:
        raise RuntimeError("It was to fail.")


def test_a_run_that_fails_leaves_the_model_its_own_methods(tmp_path: Path) -> None:
    data = SHORT["ppo"]()
    model = small_ppo(data)

    with pytest.raises(RuntimeError, match="It was to fail"):
        trainer(tmp_path, Failing()).fit(model, datamodule=data)

    assert not model.replaced_methods and "train_minibatch" not in vars(model)


HOOKED = [
    ("ppo", "critic"),
    ("dqn", "online.torso.body.1"),
    ("dqn", "online.torso"),
    ("dqn", "online"),
    ("sac", "critic.layers.0"),
]


class Hook(Callback):
    """Registers a forward hook at one point of the run, and notes whether its calls recorded a gradient."""

    def __init__(self, part: str, when: str):
        self.part, self.heard = part, list[bool]()
        setattr(self, when, self.register)

    def register(self, trainer: Any, pl_module: Any, **_: Any) -> None:
        module = pl_module.get_submodule(self.part)
        module.register_forward_hook(lambda *_: self.heard.append(torch.is_grad_enabled()))


@pytest.mark.parametrize("when", ["setup", "on_fit_start", "on_train_start"])
@pytest.mark.parametrize(("name", "part"), HOOKED)
def test_a_hook_is_called_in_updates_whenever_it_was_registered(
    tmp_path: Path, name: str, part: str, when: str
) -> None:
    hook = Hook(part, when)

    _, replaced = fitted(tmp_path, name, hook)

    assert any(hook.heard) and not replaced


class Actor(Callback):
    """Notes what the copy that acts runs."""

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        self.replaced = trainer.datamodule.collector.policy.replaced_methods


@pytest.mark.parametrize("when", [None, "on_train_start"])
def test_a_policy_copy_follows_its_module(tmp_path: Path, when: str | None) -> None:
    actor = Actor()
    hooks = [] if when is None else [Hook("critic", when)]

    fitted(tmp_path, "ppo", *hooks, actor, data=snake_data(policy_lag=1))

    assert actor.replaced == (("policy_and_value",) if when is None else ())


@pytest.mark.parametrize(("name", "part"), [("ppo", "network"), ("dqn", "online.torso"), ("sac", "network")])
def test_frozen_parameters_stay_as_they_are(tmp_path: Path, name: str, part: str) -> None:
    told, data = Told(), SHORT[name]()
    model = MODELS[name](data)
    frozen = [*model.get_submodule(part).requires_grad_(False).parameters()]
    free = [each for each in model.parameters() if each.requires_grad]
    before = [[each.detach().clone() for each in group] for group in (frozen, free)]

    trainer(tmp_path, told).fit(model, datamodule=data)

    assert not told.manual_backward and model.updates > 0
    assert all(map(torch.equal, before[0], frozen)) and not all(map(torch.equal, before[1], free))


def test_a_copy_and_a_moved_model_act_by_their_own_parameters() -> None:
    model, obs = make_ppo(), ppo_batch().obs
    noise, episode_start = torch.randn(50, 4), torch.zeros(50, dtype=torch.bool)
    replace_methods(model)

    copied = copy.deepcopy(model)
    with torch.no_grad():
        torch.nn.init.normal_(copied.actor.linear.weight)
        policies = [
            each.act(PolicyInput(obs, {}, episode_start), noise=noise)[0].extras["policy"] for each in (model, copied)
        ]

    assert not torch.allclose(*policies)
    assert not copied.replaced_methods and model.replaced_methods
    assert not model.double().replaced_methods


def test_networks_moved_after_a_run_act_with_their_new_parameters(tmp_path: Path) -> None:
    model, obs = fitted(tmp_path, "dqn")[0], torch.ones(2, 19)

    assert model.double().q_outputs(model.online, obs.double()).dtype == torch.float64
