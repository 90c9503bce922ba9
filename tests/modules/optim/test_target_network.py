"""Target networks: they follow parameters and buffers."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from modules.networks.heads.twin_critic import TwinTorsoCritic
from modules.optim.target_network import polyak_update_
from modules.sac.sac import SAC
from tests.oracles.sac import box_data, choice_data, fitted_sac
from tests.support.normalizing_networks import Normalizing, tensors_of
from tests.support.replay_fixtures import fitted_dqn, replay_data, small_dqn


def pair() -> tuple[nn.Module, nn.Module]:
    """Two networks of other weights, the second of which saw data."""
    target, source = Normalizing((3,)), Normalizing((3,))
    source(5 * torch.randn(8, 3), {}, torch.zeros(8))
    return target, source


def test_a_hard_copy_is_equal_in_every_parameter_and_buffer() -> None:
    target, source = pair()

    polyak_update_(target, source, 1.0)

    values, expected = tensors_of(target), tensors_of(source)
    assert all(torch.equal(values[name], expected[name]) for name in expected) and len(expected) == 9


def test_a_share_averages_floating_point_buffers_and_copies_integers() -> None:
    target, source = pair()
    before, latest = tensors_of(target), tensors_of(source)

    polyak_update_(target, source, 0.25)

    for name, value in tensors_of(target).items():
        averaged = value.is_floating_point()
        expected = torch.lerp(before[name], latest[name], 0.25) if averaged else latest[name]
        torch.testing.assert_close(value, expected)
    assert int(target.calls) == int(target.body[1].num_batches_tracked) == 1  # type: ignore[operator, union-attr, arg-type]


def test_numbers_of_a_buffer_that_are_not_finite_are_copied() -> None:
    target, source = nn.Linear(1, 1), nn.Linear(1, 1)
    target.register_buffer("limit", torch.tensor([torch.inf, torch.inf, 1.0]))
    source.register_buffer("limit", torch.tensor([torch.inf, 10.0, 2.0]))

    polyak_update_(target, source, 0.5)

    assert torch.equal(target.limit, torch.tensor([torch.inf, 10.0, 1.5]))  # type: ignore[arg-type]


def differences(online: nn.Module, target: nn.Module) -> dict[str, Tensor]:
    values, expected = tensors_of(target), tensors_of(online)
    return {name: (values[name] - expected[name]).abs().max() for name in expected}


def test_a_dqn_that_copies_after_every_iteration_has_a_target_equal_to_its_online_network(tmp_path: Path) -> None:
    model = fitted_dqn(tmp_path, replay_data(), network=Normalizing, target_interval=1)

    assert not any(differences(model.online, model.target).values())
    assert int(model.online.torso.calls) > 0


@pytest.mark.parametrize("data", [box_data, choice_data])
def test_twin_target_critics_follow_their_critics_buffers(tmp_path: Path, data: Any) -> None:
    critic = partial(TwinTorsoCritic, network=Normalizing)
    model: SAC = fitted_sac(tmp_path, data(), critic=critic, tau=1.0)

    assert not any(differences(model.critic, model.target_critic).values())
    assert int(model.critic.torsos[0].calls) > 0  # type: ignore[union-attr, index]


def test_a_fresh_target_network_has_the_buffers_that_no_state_dict_holds() -> None:
    class Drawn(Normalizing):
        def __init__(self, obs_shape: tuple[int, ...]):
            super().__init__(obs_shape)
            self.largest.copy_(1 + torch.rand_like(self.largest))

    model = small_dqn(replay_data(), network=Drawn)

    assert torch.equal(model.online.torso.largest, model.target.torso.largest)
