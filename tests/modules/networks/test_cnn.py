"""The convolutional networks."""

import pytest
import torch

from modules.networks.cnn import CNN, NatureCNN

RESET = torch.zeros(2, dtype=torch.bool)


@pytest.mark.parametrize("hidden", [(256,), (32, 16), ()])
def test_cnn_keeps_the_size_of_its_planes_until_the_fully_connected_layers(hidden: tuple[int, ...]) -> None:
    network = CNN((3, 10, 8), channels=(4, 6), hidden=hidden)

    features, state = network(torch.randn(2, 3, 10, 8), network.initial_state(2), RESET)

    assert features.shape == (2, network.features)
    assert network.features == (hidden[-1] if hidden else 6 * 10 * 8)
    assert state == {}


def test_cnn_takes_binary_planes_in_bytes_as_they_are_where_the_scale_says_so() -> None:
    network = CNN((3, 6, 6), channels=(4,), scale=1.0)
    planes = torch.randint(0, 2, (2, 3, 6, 6), dtype=torch.uint8)

    assert torch.equal(network(planes, {}, RESET)[0], network(planes.float(), {}, RESET)[0])


def test_nature_cnn_has_the_published_size_and_scales_bytes_once() -> None:
    network = NatureCNN((4, 84, 84))
    frames = torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8)

    features = network(frames, {}, RESET)[0]

    assert sum(weights.numel() for weights in network.parameters()) == 1_684_128
    assert features.shape == (2, network.features) == (2, 512)
    torch.testing.assert_close(features, network.body(frames.float() / 255))


def test_nature_cnn_learns_the_same_from_frames_in_either_layout() -> None:
    network = NatureCNN((4, 36, 36))
    frames = torch.randint(0, 256, (2, 4, 36, 36), dtype=torch.uint8)
    with torch.no_grad():
        acting = network(frames, {}, RESET)[0]

    learning = network(frames, {}, RESET)[0]
    gradients = torch.autograd.grad(learning.sum(), list(network.parameters()))
    expected = torch.autograd.grad(network.body(frames.float() / 255).sum(), list(network.parameters()))

    torch.testing.assert_close(learning, acting, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradients, expected, atol=1e-5, rtol=1e-4)


def test_convolutions_refuse_what_is_not_planes_and_frames_that_are_too_small() -> None:
    with pytest.raises(ValueError, match=r"CNN: the observation's shape is \(19,\), not \(C, H, W\), .*; use MLP"):
        CNN((19,))
    with pytest.raises(ValueError, match="under 36 pixels a side; use CNN"):
        NatureCNN((3, 10, 10))
    assert NatureCNN((1, 36, 36)).features == 512
