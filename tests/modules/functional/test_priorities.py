"""Prioritised drawing of segments."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from modules.functional.priorities import draw_with_replacement, importance_weights, segment_probabilities

ADVANTAGE = torch.tensor([[1.0, -2.0, 0.0, 1.0], [0.0, 2.0, 0.0, -3.0]])


def test_probabilities_are_proportional_to_summed_absolute_advantages_to_the_power_of_alpha() -> None:
    probability = segment_probabilities(ADVANTAGE, 0.5)
    expected = torch.tensor([1.0, 2.0, 1e-6, 2.0], dtype=torch.float64) + torch.tensor([1e-6, 1e-6, 0.0, 1e-6])
    torch.testing.assert_close(probability, expected / expected.sum(), rtol=1e-9, atol=0)


def test_invalid_steps_do_not_count_even_if_nan() -> None:
    advantage, valid = ADVANTAGE.clone(), torch.ones(2, 4, dtype=torch.bool)
    advantage[1, 3], valid[1, 3] = torch.nan, False
    probability = segment_probabilities(advantage, 1.0, valid)
    assert probability[3] == probability[0]


def test_alpha_zero_is_uniform_and_its_weights_are_one() -> None:
    probability = segment_probabilities(ADVANTAGE, 0.0)
    torch.testing.assert_close(probability, torch.full((4,), 0.25, dtype=torch.float64))
    torch.testing.assert_close(importance_weights(probability, 0.7), torch.ones(4))


def test_weights_are_the_inverse_of_size_times_probability_to_the_power_of_beta() -> None:
    probability = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    torch.testing.assert_close(importance_weights(probability, 1.0), torch.tensor([2 / 3, 4 / 3, 4 / 3]))
    torch.testing.assert_close(importance_weights(probability, 0.0), torch.ones(3))


@given(st.integers(0, 1_000))
@settings(max_examples=20, deadline=None)
def test_with_beta_one_the_weighted_mean_of_draws_is_that_of_all_segments(seed: int) -> None:
    random = torch.Generator().manual_seed(seed)
    advantage, term = torch.randn(3, 6, generator=random), torch.randn(6, generator=random)
    probability = segment_probabilities(advantage, 0.8)
    expectation = (probability * importance_weights(probability, 1.0) * term).sum()
    torch.testing.assert_close(expectation.float(), term.mean(), rtol=1e-4, atol=1e-5)


def test_draws_have_the_given_frequencies() -> None:
    probability = segment_probabilities(ADVANTAGE, 1.0)
    noise = torch.rand(100_000, generator=torch.Generator().manual_seed(0))
    frequency = draw_with_replacement(probability, noise).bincount(minlength=4) / len(noise)
    torch.testing.assert_close(frequency.double(), probability, rtol=0, atol=0.01)


@pytest.mark.parametrize("noise", [0.0, 1.0 - 2.0**-24, 1.0])
def test_the_ends_of_the_unit_interval_are_drawn_within_range(noise: float) -> None:
    drawn = draw_with_replacement(torch.tensor([0.1] * 10), torch.tensor([noise]))
    assert drawn.tolist() == [0 if noise == 0 else 9]
