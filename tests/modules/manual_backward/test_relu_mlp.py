"""Plain ReLU networks with their gradients written out: values and gradients are those of autograd."""

import pytest
import torch
from torch import nn
from torch.optim import Adam

from modules.manual_backward.relu_mlp import as_features, is_relu_mlp, layers_of
from modules.networks.heads.q_value import QHead, QNetwork
from modules.networks.mlp import MLP
from modules.optim.flat_parameters import flatten_optimizer


def network(**settings: object) -> QNetwork:
    torch.manual_seed(0)
    return QNetwork(MLP((2, 3), (16, 8), activation="relu", **settings), QHead(8, 4))  # type: ignore[arg-type]


def test_values_and_gradients_are_those_of_autograd_to_the_last_bit() -> None:
    graph, optimizer = network(), Adam(network().parameters())
    flat = flatten_optimizer(optimizer)
    assert flat is not None
    obs, grad_output = torch.randint(5, (9, 2, 3)), torch.randn(9, 4)

    layers = layers_of(flat)
    values, seen = layers(as_features(obs))
    layers.backward_(seen, grad_output)

    expected = graph(obs).squeeze(-1)
    assert torch.equal(values, expected)
    assert all(map(torch.equal, flat.grad_views, torch.autograd.grad(expected, [*graph.parameters()], grad_output)))


def test_layers_read_the_weights_as_they_are_then() -> None:
    net = network()
    flat = flatten_optimizer(Adam(net.parameters()))
    assert flat is not None
    layers = layers_of(flat)

    net.load_state_dict({name: value + 1 for name, value in net.state_dict().items()})

    obs = torch.randn(3, 6)
    assert torch.equal(layers(obs)[0], net(obs).squeeze(-1))


@pytest.mark.parametrize("settings", [{"layer_norm": True}, {"activation": "tanh"}], ids=str)
def test_other_layers_are_not_plain(settings: dict[str, object]) -> None:
    assert is_relu_mlp(network())
    assert not is_relu_mlp(MLP((3,), (4,), **{"activation": "relu", **settings}))  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["", "torso", "torso.body.1", "head"])
@pytest.mark.parametrize("listen", [nn.Module.register_forward_hook, nn.Module.register_full_backward_hook])
def test_a_network_that_somebody_listens_to_is_not_plain(part: str, listen: object) -> None:
    net = network()
    listen(net.get_submodule(part), lambda *_: None)  # type: ignore[operator]

    assert not is_relu_mlp(net)
