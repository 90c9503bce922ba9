"""The protocol of a network, and the examples of it that live here."""

import copy

import pytest
import torch
from torch import nn

from modules.networks import CNN, MLP, NatureCNN
from modules.networks.base import FeedForward, Network, orthogonal

SHAPE = (3, 40, 40)


@pytest.mark.parametrize("kind", [MLP, CNN, NatureCNN])
def test_networks_are_built_from_the_shape_alone_and_satisfy_the_protocol(kind: type[MLP]) -> None:
    network: Network = kind(SHAPE)
    obs = torch.randn(2, *SHAPE)
    before = copy.deepcopy(obs)

    features, _ = network(obs, network.initial_state(2), torch.ones(2, dtype=torch.bool))

    assert features.shape == (2, network.features)
    assert torch.equal(obs, before)


@pytest.mark.parametrize("kind", [MLP, CNN])
def test_networks_compile_into_one_graph(kind: type[MLP]) -> None:
    network = kind((3, 6, 6))
    planes, episode_start = torch.ones(2, 3, 6, 6, dtype=torch.uint8), torch.zeros(2, dtype=torch.bool)
    compiled = torch.compile(network, fullgraph=True, backend="eager")

    torch.testing.assert_close(compiled(planes, {}, episode_start)[0], network(planes, {}, episode_start)[0])


def test_hooks_on_a_layer_are_called_when_there_are_some() -> None:
    network, seen = MLP((3,)), list[str]()
    obs, episode_start = torch.randn(2, 3), torch.zeros(2, dtype=torch.bool)
    before, _ = network(obs, {}, episode_start)

    network.body[2].register_forward_hook(lambda *_: seen.append("after"))
    network.body[3].register_forward_pre_hook(lambda *_: seen.append("before"))

    assert torch.equal(network(obs, {}, episode_start)[0], before)
    assert seen == ["after", "before"]


def test_orthogonal_scales_by_its_gain_and_takes_layers_without_bias() -> None:
    layer = orthogonal(nn.Linear(8, 8, bias=False), 0.5)

    torch.testing.assert_close(layer.weight @ layer.weight.T, 0.25 * torch.eye(8), rtol=0, atol=1e-6)


class Sum(nn.Module):
    def forward(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        return obs["a"] + obs["b"]


def test_a_feed_forward_network_takes_observations_of_several_parts() -> None:
    network, part = FeedForward(Sum(), features=2), torch.ones(3, 2)

    features, state = network({"a": part, "b": part}, {}, torch.zeros(3, dtype=torch.bool))

    assert torch.equal(features, 2 * part) and state == {}
