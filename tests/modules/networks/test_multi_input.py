from functools import partial

import pytest
import torch
from torch import nn

from datamodules.core.types import ObsPart
from modules.networks.choice_encoders import Embedding, OneHot
from modules.networks.cnn import CNN, NatureCNN
from modules.networks.heads.multi_input_critic import MultiInputCritic, make_critic
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.networks.multi_input import (
    FlattenPart,
    MultiInput,
    default_encoder,
    make_network,
    make_obs_normalizer,
    set_part_scales_,
)
from modules.networks.recurrent import GRU

IMAGE = ObsPart(shape=(7, 7, 3), dtype="uint8")
PARTS = {
    "camera": ObsPart(shape=(64, 64, 3), dtype="uint8"),
    "choice": ObsPart(shape=(), dtype="int64", sizes=[4]),
    "choices": ObsPart(shape=(2,), dtype="int64", sizes=[2, 3]),
    "image": IMAGE,
    "speed": ObsPart(shape=(2,), dtype="float32"),
}


def observations(*leading: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    random = partial(torch.randint, generator=generator)
    return {
        "camera": random(0, 256, (*leading, 64, 64, 3)).to(torch.uint8),
        "choice": random(0, 4, leading),
        "choices": torch.stack([random(0, 2, leading), random(0, 3, leading)], -1),
        "image": random(0, 11, (*leading, 7, 7, 3)).to(torch.uint8),
        "speed": torch.randn(*leading, 2, generator=generator),
    }


def test_every_part_has_an_encoder_of_its_kind_by_default():
    kinds = {name: default_encoder(part) for name, part in PARTS.items()}
    assert kinds == {
        "camera": NatureCNN,
        "choice": OneHot,
        "choices": OneHot,
        "image": CNN,
        "speed": FlattenPart,
    }
    assert default_encoder(ObsPart(shape=(6, 5, 7), dtype="uint8")) is FlattenPart  # no layout of channels


def test_features_are_those_of_the_encoders_joined_in_order():
    network = make_network(MLP, PARTS)
    obs, episode_start = observations(3), torch.zeros(3, dtype=torch.bool)
    joined = network.parts(obs)

    assert isinstance(network, MultiInput) and isinstance(network.torso, MLP)
    assert joined.shape == (3, 512 + 4 + 5 + 256 + 2) and network(obs, {}, episode_start)[0].shape == (3, 64)
    assert torch.equal(joined[:, 512:516], nn.functional.one_hot(obs["choice"], 4).float())
    assert torch.equal(joined[:, 516:518], nn.functional.one_hot(obs["choices"][:, 0], 2).float())
    assert torch.equal(joined[:, 518:521], nn.functional.one_hot(obs["choices"][:, 1], 3).float())
    assert torch.equal(joined[:, -2:], obs["speed"])


def test_an_encoder_by_name_replaces_the_default_and_an_embedding_is_a_row_of_its_table():
    encoders = {"choices": partial(Embedding, dims=3), "speed": partial(MLP, hidden=(8,)), "image": MLP}
    network = MultiInput(PARTS, encoders, torso=partial(MLP, hidden=(16,)))
    encoder = network.parts.encoders[2]
    obs = observations(3)
    found, _ = encoder(obs["choices"], {}, torch.zeros(3))

    assert network.features == 16 and network.parts.features == 512 + 4 + 6 + 64 + 8
    assert torch.equal(found[:, 3:], encoder.table.weight[2 + obs["choices"][:, 1]])


def test_a_recurrent_torso_unrolls_as_it_steps():
    network = make_network(GRU, PARTS)
    obs, episode_start = observations(4, 3), torch.zeros(4, 3, dtype=torch.bool)
    episode_start[2, 1] = True
    state, steps = network.initial_state(3), []
    for t in range(4):
        features, state = network({name: part[t] for name, part in obs.items()}, state, episode_start[t])
        steps.append(features)

    unrolled, states = network.unroll_with_states(obs, network.initial_state(3), episode_start)
    assert torch.allclose(unrolled, torch.stack(steps), atol=1e-6)
    assert torch.allclose(states["hidden"][-1], state["hidden"], atol=1e-6)
    assert torch.equal(network.unroll(obs, network.initial_state(3), episode_start), unrolled)
    assert not hasattr(make_network(MLP, PARTS), "unroll")


def test_scales_belong_to_the_parts_and_a_given_one_is_kept():
    network = MultiInput(PARTS, {"camera": partial(NatureCNN, scale=0.5)})
    set_part_scales_(network, {"camera": 1 / 255, "choice": 1, "choices": 1, "image": 0.1, "speed": 1})
    camera, _, _, image, speed = network.parts.encoders
    assert (camera.scale, image.scale, speed.scale, network.torso.scale) == (0.5, 0.1, 1, 1)


def test_running_statistics_normalise_numbers_only_each_part_by_its_own():
    normalizer, obs = make_obs_normalizer({"obs_shape": (), "obs_parts": PARTS}), observations(50)
    normalizer.update_(obs)
    shown = normalizer(obs)
    assert torch.allclose(shown["speed"].mean(0), torch.zeros(2), atol=1e-5)
    assert all(shown[name] is obs[name] for name in PARTS if name != "speed")


def test_critics_share_the_encoders():
    critic = make_critic(TwinMLP, {name: PARTS[name] for name in ("choice", "speed")}, 2, 1)
    obs = {name: part for name, part in observations(3).items() if name in ("choice", "speed")}
    assert isinstance(critic, MultiInputCritic) and critic(obs, torch.zeros(3, 2)).shape == (2, 3, 1)
    alone = make_critic(TwinMLP, (6,), 2, 1)
    alone.load_state_dict(critic.critic.state_dict())
    assert torch.equal(critic(obs, torch.ones(3, 2)), alone(critic.parts(obs), torch.ones(3, 2)))


@pytest.mark.parametrize(
    ("encoders", "torso", "message"),
    [
        ({"imag": CNN}, MLP, "no part 'imag' to encode; the parts are camera, choice, choices, image, speed"),
        ({"speed": OneHot}, MLP, "OneHot encodes choices, but the part speed has none"),
        ({"speed": GRU}, MLP, "the encoder of speed is GRU, which is recurrent; make it the torso"),
        ({}, CNN, "whose 779 joined features the torso cannot take .* give MultiInput an encoder"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(encoders, torso, message):
    with pytest.raises(ValueError, match=message):
        MultiInput(PARTS, encoders, torso)


def test_one_tensor_has_no_parts():
    with pytest.raises(ValueError, match=r"shape \(4,\) has one part; use MLP"):
        MultiInput((4,))
