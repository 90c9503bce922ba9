"""The model of an observed system: what its inputs push."""

import pytest
import torch

from modules.active_dynamics.observed_model import FullyObservedModel
from modules.networks.latent import RBF


def test_inputs_push_the_axes_they_are_given() -> None:
    model = FullyObservedModel(RBF(), axes=[1])

    assert model.action_encoder(torch.tensor([[0.5]])).tolist() == [[0.0, 0.5]]
    assert FullyObservedModel(RBF()).action_encoder(torch.tensor([0.5, 2.0])).tolist() == [0.5, 2.0]


def test_the_state_is_what_is_seen() -> None:
    obs = torch.randn(2, 3, 2)

    mean, variance = FullyObservedModel(RBF()).encode(obs)

    assert torch.equal(mean, obs) and not variance.any()
    sensitivity, noise = FullyObservedModel(RBF()).decoder.sensitivity(obs)
    assert torch.equal(sensitivity[1, 2], torch.eye(2)) and noise.shape == obs.shape


@pytest.mark.parametrize("axes", [[], [2], [-1]])
def test_axes_that_are_not_there_are_refused(axes: list[int]) -> None:
    with pytest.raises(ValueError, match="has axes 0 to 1"):
        FullyObservedModel(RBF(), axes=axes)


def test_a_push_has_the_strength_it_is_given() -> None:
    model = FullyObservedModel(RBF(), axes=[1], strength=[3.0])

    assert model.action_encoder(torch.tensor([[0.5]])).tolist() == [[0.0, 1.5]]


def test_strengths_that_are_not_one_a_part_are_refused() -> None:
    with pytest.raises(ValueError, match="one number for each of 1 parts"):
        FullyObservedModel(RBF(), axes=[1], strength=[3.0, 1.0])
