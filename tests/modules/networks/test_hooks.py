"""Hooks on inner layers: all kinds of them are heard, and keep the fast paths away."""

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import seed_everything
from torch import nn
from torch.nn.modules import module as torch_module
from torch.nn.utils import parametrizations

from modules.networks.base import has_hooks, run_layers
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.optim.optimizer_group import OptimizerGroup, run_hooks_
from modules.ppo.ppo import PPO
from modules.sac.sac import SAC
from tests.oracles.sac import box_data
from tests.support.replay_fixtures import replay_data, small_dqn
from tests.support.small_runs import Told, cartpole_data, trainer

KINDS = [
    name
    for name in dir(nn.Module)
    if name.startswith("register_") and name.endswith("_hook") and "state_dict" not in name
]
EVERYWHERE = [name for name in dir(torch_module) if name.startswith("register_module_") and name.endswith("_hook")]
EVERYWHERE = [name for name in EVERYWHERE if "registration" not in name and name != "register_module_backward_hook"]
LAYERS = ["network.body", "network.body.1", "network.body.2", "actor.linear", "critic.linear"]
FORWARD = ["register_forward_hook", "register_forward_pre_hook"]


def test_torch_has_the_kinds_of_hooks_that_are_known_here() -> None:
    assert {*KINDS} == {
        "register_backward_hook", "register_forward_hook", "register_forward_pre_hook",
        "register_full_backward_hook", "register_full_backward_pre_hook",
    }  # fmt: skip


@pytest.mark.parametrize(  # a head returns a distribution, and torch's backward hooks want tensors
    ("kind", "part"), [*product(KINDS, LAYERS), *product(FORWARD, ["actor"])]
)
def test_a_hook_on_any_layer_is_heard_in_updates(tmp_path: Path, kind: str, part: str) -> None:
    told, data, heard = Told(), cartpole_data(total_env_steps=64), list[str]()
    model = PPO(data.spaces, network=lambda shape: MLP(shape, (8,)), num_minibatches=2, update_epochs=1)
    getattr(model.get_submodule(part), kind)(lambda *_: heard.append(part))

    trainer(tmp_path, told).fit(model, datamodule=data)

    assert heard and not told.manual_backward


INNER = {"ppo": "network.body", "dqn": "online.torso.body", "sac": "critic.layers"}


def fitted_with_hook(root: Path, algorithm: str, kind: str, number: int) -> tuple[list[torch.Tensor], list[Any]]:
    """The weights of an agent of ReLU networks with a hook on a layer of one, and what the hook heard."""
    seed_everything(1, verbose=False)
    relu, heard = partial(MLP, hidden=(8, 8), activation="relu"), list[Any]()
    data: Any = {"ppo": cartpole_data, "dqn": replay_data, "sac": box_data}[algorithm](total_env_steps=128)
    models: dict[str, Callable[[], Any]] = {
        "ppo": lambda: PPO(data.spaces, network=relu, num_minibatches=2, update_epochs=1),
        "dqn": lambda: small_dqn(data, network=relu),
        "sac": lambda: SAC(data.spaces, network=relu, critic=partial(TwinMLP, hidden=(8, 8))),
    }
    model = models[algorithm]()
    getattr(model.get_submodule(INNER[algorithm])[number], kind)(lambda *_: heard.append(kind))
    trainer(root).fit(model, datamodule=data)
    return [each.detach() for each in model.parameters()], heard


@pytest.mark.parametrize("kind", ["register_full_backward_hook", "register_full_backward_pre_hook"])
@pytest.mark.parametrize("algorithm", INNER)
def test_a_full_backward_hook_beside_a_relu_is_heard_and_changes_nothing(
    tmp_path: Path, algorithm: str, kind: str
) -> None:
    expected, _ = fitted_with_hook(tmp_path, algorithm, "register_forward_hook", -1)
    before = 0 if algorithm == "sac" else 1

    for number in (before, before + 1):
        weights, heard = fitted_with_hook(tmp_path, algorithm, kind, number)

        assert heard and all(map(torch.equal, weights, expected))


def test_what_a_forward_hook_keeps_before_a_relu_is_not_overwritten() -> None:
    kept: list[torch.Tensor] = []
    network, obs = MLP((3,), (64,), "relu"), torch.randn(2, 3)
    network.body[1].register_forward_hook(lambda layer, inputs, output: kept.append(output))

    network(obs, {}, torch.zeros(2))

    assert torch.equal(kept[0], torch.nn.functional.linear(obs, network.body[1].weight, network.body[1].bias))


def test_a_relu_without_hooks_overwrites_the_output_of_an_affine_layer_only() -> None:
    affine, other = nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.ReLU())

    changes = [run_layers(layers, torch.randn(2, 3))._version for layers in (affine, other)]

    assert changes == [1, 0]


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_a_hook_on_all_modules_is_heard_by_a_network(kind: str) -> None:
    heard: list[Any] = []
    network = MLP((3,), (4,), activation="relu")
    handle = getattr(torch_module, kind)(lambda layer, *_: heard.append(type(layer)))
    try:
        network(torch.randn(2, 3, requires_grad=True), {}, torch.zeros(2))[0].sum().backward()
        assert has_hooks(network)
    finally:
        handle.remove()
    assert nn.Linear in heard


def frozen(layer: Any) -> None:
    layer.weight.requires_grad_(False)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "parametrization": parametrizations.weight_norm,
    "weight norm": nn.utils.weight_norm,
    "tensor hook": lambda layer: layer.weight.register_hook(lambda gradient: gradient),
    "accumulated": lambda layer: layer.weight.register_post_accumulate_grad_hook(lambda parameter: None),
    "forward": lambda layer: setattr(layer, "forward", layer.forward),
    "frozen": frozen,
}
PARTS = {
    "ppo": ["actor.linear", "network.body.1"],
    "dqn": ["online.head.linear"],
    "sac": ["head.linear", "critic.layers.0"],
}
STRUCTURAL = ("parametrization", "weight norm")
TARGETS = {"online.head.linear": "target.head.linear", "critic.layers.0": "target_critic.layers.0"}
"""A target network has the layers of the network that it follows."""


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("algorithm", "part"), [(name, part) for name, parts in PARTS.items() for part in parts])
def test_a_changed_layer_goes_the_long_way(tmp_path: Path, algorithm: str, part: str, change: str) -> None:
    data: Any = {"ppo": cartpole_data, "dqn": replay_data, "sac": box_data}[algorithm](total_env_steps=128)
    models: dict[str, Callable[[], Any]] = {
        "ppo": lambda: PPO(data.spaces),
        "dqn": lambda: small_dqn(data, network=lambda shape: MLP(shape, (8,), "relu")),
        "sac": lambda: SAC(
            data.spaces,
            network=lambda shape: MLP(shape, (8,), "relu"),
            critic=lambda *shape: TwinMLP(*shape, hidden=(8,)),
        ),
    }
    model, told = models[algorithm](), Told()
    names = [part, TARGETS[part]] if change in STRUCTURAL and part in TARGETS else [part]
    for name in names:
        CHANGES[change](model.get_submodule(name))

    trainer(tmp_path, told).fit(model, datamodule=data)

    assert not told.manual_backward and all(bool(each.isfinite().all()) for each in model.parameters())


@pytest.mark.parametrize("groups", [1, 2])
def test_hooks_on_a_parameter_see_its_gradient_and_may_change_it(groups: int) -> None:
    layer, seen = nn.Linear(2, 1), list[torch.Tensor]()
    parts: Any = layer.parameters() if groups == 1 else [{"params": [each]} for each in layer.parameters()]
    optimizers = OptimizerGroup([torch.optim.SGD(parts, lr=1.0)])
    layer.weight.register_hook(lambda gradient: 2 * gradient)
    layer.weight.register_post_accumulate_grad_hook(lambda each: seen.append(each.grad.clone()))  # type: ignore[union-attr]
    layer.weight.register_post_accumulate_grad_hook(lambda each: each.grad.zero_())  # type: ignore[union-attr]
    before = layer.weight.detach().clone()

    optimizers.step(layer(torch.ones(1, 2)).sum(), optimizers.each[0], 100.0)

    assert torch.equal(seen[0], torch.full((1, 2), 2.0)) and torch.equal(layer.weight, before)
    assert has_hooks(layer)


@pytest.mark.parametrize(("new", "kept"), [(torch.full((1, 2), 3.0), 3.0), (None, 0.0)])
def test_a_hook_may_put_another_gradient_in_place(new: torch.Tensor | None, kept: float) -> None:
    layer, gradient = nn.Linear(2, 1), torch.ones(1, 2)
    layer.weight.register_post_accumulate_grad_hook(lambda each: setattr(each, "grad", new))

    run_hooks_([layer.weight], [gradient])

    assert gradient.tolist() == [[kept, kept]]
