"""Where networks find the channels of an image, and by what they scale it."""

import itertools

import pytest
import torch
from torch import Tensor, nn

from modules.networks import CNN, GRU, LSTM, MLP, NatureCNN
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.preprocessing import image_layout, set_obs_scale_

RESET = torch.zeros(2, dtype=torch.bool)


def pixels(*shape: int) -> Tensor:
    """Two images, the same for the same shape."""
    return torch.randint(0, 256, (2, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


SIDES = {CNN: (6, 9), NatureCNN: (36, 44)}


def built(kind: type[CNN] | type[NatureCNN], shape: tuple[int, ...], **layout: bool) -> CNN | NatureCNN:
    torch.manual_seed(0)
    return CNN(shape, (4,), hidden=(16,), **layout) if kind is CNN else NatureCNN(shape, 16, **layout)


@pytest.mark.parametrize(
    ("shape", "planes", "last"),
    [
        ((3, 64, 64), (3, 64, 64), False),
        ((4, 84, 84), (4, 84, 84), False),
        ((1, 84, 84), (1, 84, 84), False),
        ((17, 8, 8), (17, 8, 8), False),
        ((3, 210, 160), (3, 210, 160), False),
        ((2, 6, 7), (2, 6, 7), False),
        ((64, 64, 3), (3, 64, 64), True),
        ((96, 96, 3), (3, 96, 96), True),
        ((210, 160, 3), (3, 210, 160), True),
        ((84, 84, 4), (4, 84, 84), True),
        ((84, 84, 1), (1, 84, 84), True),
        ((7, 7, 3), (3, 7, 7), True),
        ((4, 4, 3), (3, 4, 4), True),
        ((3, 4, 4), (3, 4, 4), False),
        ((84, 84), (1, 84, 84), False),
        ((4, 84, 84, 3), (12, 84, 84), True),
        ((4, 84, 84, 1), (4, 84, 84), True),
        ((4, 3, 84, 84), (12, 84, 84), False),
    ],
)
def test_the_channels_are_found_by_the_shape(shape: tuple[int, ...], planes: tuple[int, ...], last: bool) -> None:
    assert image_layout("CNN", shape) == (*planes, last)


@pytest.mark.parametrize(
    "shape", [(3, 64, 3), (4, 4, 4), (3, 3, 3), (4, 84, 3), (84, 84, 9), (10, 10, 7), (12, 4, 9), (8, 3, 64, 3)]
)
@pytest.mark.parametrize("kind", [CNN, NatureCNN])
def test_a_shape_that_does_not_tell_is_refused_with_the_setting_that_decides(
    kind: type[CNN], shape: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=f"^{kind.__name__}: .*set channels_last of {kind.__name__} to true or false"):
        kind(shape)


@pytest.mark.parametrize("last", [True, False])
def test_the_setting_decides_where_the_shape_does_not(last: bool) -> None:
    assert image_layout("CNN", (4, 5, 3), last)[:3] == ((3, 4, 5) if last else (4, 5, 3))
    assert image_layout("CNN", (2, 4, 5, 3), last)[:3] == ((6, 4, 5) if last else (8, 5, 3))
    network = CNN((4, 5, 3), channels_last=last)
    assert network.body[0].in_channels == (3 if last else 4)
    assert network(pixels(4, 5, 3), {}, RESET)[0].shape == (2, 256)


@pytest.mark.parametrize("shape", [(19,), (2, 2, 3, 4, 5), ()])
def test_what_is_no_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"CNN: the observation's shape is .* use MLP, or an environment"):
        CNN(shape)


@pytest.mark.parametrize(("kind", "channels"), list(itertools.product([CNN, NatureCNN], [1, 3, 4])))
@pytest.mark.parametrize("learning", [True, False])
def test_an_image_with_the_channels_last_is_the_same_image(kind: type[CNN], channels: int, learning: bool) -> None:
    first, last = built(kind, (channels, *SIDES[kind])), built(kind, (*SIDES[kind], channels))
    obs = pixels(channels, *SIDES[kind])

    with torch.set_grad_enabled(learning):
        expected = first(obs, {}, RESET)[0]
        found = last(obs.permute(0, 2, 3, 1).contiguous(), {}, RESET)[0]

    assert first.state_dict().keys() == last.state_dict().keys()
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert (found[0] - found[1]).abs().max() > 1e-2


@pytest.mark.parametrize("kind", [CNN, NatureCNN])
@pytest.mark.parametrize(("before", "after"), [((4,), (3,)), ((4,), (1,)), ((4, 3), ()), ((), ())])
def test_every_frame_of_a_stack_brings_its_channels(
    kind: type[CNN], before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    shape = (*before, *SIDES[kind], *after)
    obs = pixels(*shape)
    planes = (obs.movedim(-1, 2) if after else obs).reshape(2, -1, *SIDES[kind])

    found = built(kind, shape)(obs, {}, RESET)[0]

    torch.testing.assert_close(found, built(kind, tuple(planes.shape[1:]), channels_last=False)(planes, {}, RESET)[0])


@pytest.mark.parametrize("kind", [CNN, NatureCNN])
def test_gradients_of_images_with_the_channels_last_are_the_same(kind: type[CNN]) -> None:
    first, last = built(kind, (3, *SIDES[kind])), built(kind, (*SIDES[kind], 3))
    obs = pixels(3, *SIDES[kind])
    given = [(first, obs), (last, obs.permute(0, 2, 3, 1).contiguous())]

    gradients = [torch.autograd.grad(net(shown, {}, RESET)[0].sum(), list(net.parameters())) for net, shown in given]

    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-4)


NETWORKS = {
    "MLP": lambda: MLP((3, 36, 36), (16,)),
    "CNN": lambda: CNN((3, 36, 36), (4,), hidden=(16,)),
    "NatureCNN": lambda: NatureCNN((3, 36, 36), 16),
    "LSTM": lambda: LSTM((3, 36, 36), 16, (16,)),
    "GRU": lambda: GRU((3, 36, 36), 16, (16,)),
}


def features(network: nn.Module, obs: Tensor) -> Tensor:
    return network(obs, network.initial_state(2), RESET)[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_bytes_are_divided_by_255_and_floats_are_left_alone(name: str) -> None:
    network, obs = NETWORKS[name](), pixels(3, 36, 36)

    torch.testing.assert_close(features(network, obs), features(network, obs.float() / 255), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_codes_are_divided_by_what_the_space_allows(name: str) -> None:
    network, obs = NETWORKS[name](), pixels(3, 36, 36) % 9
    unscaled = features(network, obs.float() / 8)

    set_obs_scale_(network, 1 / 8)

    torch.testing.assert_close(features(network, obs), unscaled, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_a_scale_that_was_given_stays(scale: float) -> None:
    for network in (MLP((3,), scale=scale), CNN((3, 6, 6), scale=scale), GRU((3,), scale=scale)):
        set_obs_scale_(nn.ModuleList([network]), 1 / 8)
        assert network.scale == scale
        obs = pixels(*((3, 6, 6) if isinstance(network, CNN) else (3,)))
        torch.testing.assert_close(network.preprocess(obs), obs * scale)


def test_twin_critics_scale_what_they_see_and_not_the_action() -> None:
    critic, obs, action = TwinMLP((3, 4, 4), 2, 1, (16,)), pixels(3, 4, 4), torch.randn(2, 2)
    expected = critic(obs / 16, action)

    torch.testing.assert_close(critic(obs, action), critic(obs / 255, action))
    torch.testing.assert_close(set_obs_scale_(critic, 1 / 16)(obs, action), expected)
    assert torch.equal(TwinMLP((3,), 0, 1, scale=0.25).preprocess(pixels(3)), pixels(3) / 4)


@pytest.mark.parametrize("shape", [(6, 6, 3), (3, 6, 6), (6, 6), (2, 6, 6, 3)])
def test_every_layout_compiles_into_one_graph(shape: tuple[int, ...]) -> None:
    network = CNN(shape)
    compiled = torch.compile(network, fullgraph=True, backend="eager")

    torch.testing.assert_close(compiled(pixels(*shape), {}, RESET)[0], network(pixels(*shape), {}, RESET)[0])
