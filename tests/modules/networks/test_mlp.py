"""The fully connected network."""

import pytest
import torch
from torch import nn

from modules.networks.mlp import MLP

RESET = torch.zeros(3, dtype=torch.bool)


def test_mlp_flattens_and_returns_its_features_and_the_state_as_it_came() -> None:
    network = MLP((2, 5), hidden=(16, 8))

    features, state = network(torch.randn(3, 2, 5), network.initial_state(3), RESET)

    assert features.shape == (3, network.features) == (3, 8)
    assert state == {}


def test_mlp_starts_orthogonal_with_gain_sqrt_2_and_no_bias() -> None:
    layers = [layer for layer in MLP((64,)).modules() if isinstance(layer, nn.Linear)]

    for layer in layers:
        torch.testing.assert_close(layer.weight @ layer.weight.T, 2 * torch.eye(64), rtol=0, atol=1e-5)
        assert not layer.bias.any()


def test_mlp_takes_binary_planes_in_bytes_as_they_are_where_the_scale_says_so() -> None:
    network = MLP((3, 4, 4), scale=1.0)
    planes = torch.randint(0, 2, (3, 3, 4, 4), dtype=torch.uint8)

    assert torch.equal(network(planes, {}, RESET)[0], network(planes.float(), {}, RESET)[0])


def test_mlp_casts_integers_to_the_precision_of_its_weights_and_scales() -> None:
    network = MLP((4,), scale=0.5).double()
    obs = torch.arange(12).reshape(3, 4)

    features = network(obs, {}, RESET)[0]

    assert features.dtype == torch.float64
    torch.testing.assert_close(features, network.body(obs.double() / 2))


@pytest.mark.parametrize(("activation", "layer"), [("relu", nn.ReLU), ("silu", nn.SiLU), (nn.Mish, nn.Mish)])
def test_mlp_takes_an_activation_by_name_or_class(activation: str, layer: type[nn.Module]) -> None:
    kinds = [type(module) for module in MLP((4,), activation=activation, layer_norm=True).body]

    assert kinds == [nn.Flatten, *[nn.Linear, nn.LayerNorm, layer] * 2]


def test_mlp_refuses_what_it_cannot_build() -> None:
    with pytest.raises(ValueError, match="hidden is empty"):
        MLP((4,), hidden=())
    with pytest.raises(ValueError, match="activation is 'rellu'; use one of tanh, relu"):
        MLP((4,), activation="rellu")
