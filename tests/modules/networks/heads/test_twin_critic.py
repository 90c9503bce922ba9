"""Twin critics: two networks in one."""

import pytest
import torch
from torch import nn

from modules.networks import CNN
from modules.networks.heads.twin_critic import TwinLinear, TwinMLP, TwinTorsoCritic


def halves(critic: TwinMLP) -> list[nn.Sequential]:
    """The two critics as networks of their own."""
    pair = []
    for which in range(2):
        layers: list[nn.Module] = []
        for layer in critic.layers:
            if isinstance(layer, TwinLinear):
                alone = nn.Linear(*layer.weight.shape[1:])
                alone.weight.data, alone.bias.data = layer.weight[which].T, layer.bias[which, 0]
                layer = alone
            layers.append(layer)
        pair.append(nn.Sequential(*layers))
    return pair


def test_twins_equal_two_networks_value_and_gradient() -> None:
    critic = TwinMLP((3,), 2, 1, hidden=(16, 8)).double()
    obs, action = torch.randn(10, 3).double(), torch.rand(10, 2).double().requires_grad_()
    first, second = (half.double() for half in halves(critic))
    inputs = torch.cat([obs, action], -1)

    both = critic(obs, action)

    torch.testing.assert_close(both, torch.stack([first(inputs), second(inputs)]), rtol=1e-12, atol=1e-12)
    (ours,) = torch.autograd.grad(both.sum(), action, retain_graph=True)
    (theirs,) = torch.autograd.grad(first(inputs).sum() + second(inputs).sum(), action)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_twins_begin_apart_and_learn_apart() -> None:
    critic = TwinMLP((3,), 1, 1)
    obs, action = torch.randn(10, 3), torch.rand(10, 1)

    q = critic(obs, action)
    gradient = torch.autograd.grad(q[0].sum(), critic.layers[0].weight)[0]

    assert not torch.equal(q[0], q[1])
    assert gradient[0].abs().sum() > 0 and gradient[1].abs().sum() == 0


def test_layers_are_orthogonal_and_have_no_bias_at_first() -> None:
    layer = TwinLinear(4, 16, gain=1.0)

    torch.testing.assert_close(layer.weight[0] @ layer.weight[0].T, torch.eye(4), atol=1e-5, rtol=0)
    assert not layer.bias.any()


def test_choices_have_an_output_each_and_bytes_are_cast() -> None:
    q = TwinMLP((2, 2), 0, 5, hidden=(8,))(torch.zeros(7, 2, 2, dtype=torch.uint8))

    assert q.shape == (2, 7, 5) and q.dtype == torch.float32


@pytest.mark.parametrize("dims", [0, 2])
def test_twins_on_images_see_planes_and_action(dims: int) -> None:
    critic = TwinTorsoCritic(
        (3, 5, 5), dims, 4, network=lambda shape: CNN(shape, channels=(4,), hidden=(16,)), hidden=8
    )
    planes, action = torch.rand(6, 3, 5, 5), torch.rand(6, dims) if dims else None

    q = critic(planes, action)

    assert q.shape == (2, 6, 4)
    assert (q != critic(planes.flip(-1), action)).all(-1).any()


def test_no_hidden_layer_is_refused() -> None:
    with pytest.raises(ValueError, match="hidden is empty"):
        TwinMLP((3,), 1, 1, hidden=())
