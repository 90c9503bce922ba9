"""Losses and targets of action values against slow restatements, in float64."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from modules.functional.q_learning import (
    huber,
    project_distribution,
    quantile_huber,
    rescaled_value,
    sequence_priority,
    unscaled_value,
)

SUPPORT = torch.linspace(-2, 2, 5, dtype=torch.float64)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_huber_is_squared_near_zero_and_linear_beyond() -> None:
    assert_close(huber(numbers(3, -3, 0.5, 0)), numbers(2.5, 2.5, 0.125, 0))
    assert_close(huber(numbers(3), delta=2.0), numbers(4))


def slow_projection(probability: Tensor, return_: float, discount: float) -> Tensor:
    """Each atom's mass, moved, clipped, and shared between its two neighbours: algorithm 1 of the paper."""
    result = torch.zeros_like(probability)
    for mass, atom in zip(probability.tolist(), SUPPORT.tolist(), strict=True):
        place = min(max(return_ + discount * atom, -2.0), 2.0) + 2.0
        low, high = int(place // 1), min(int(place // 1) + 1, 4)
        result[low] += mass * (1 - (place - low))
        result[high] += mass * (place - low)
    return result


def test_projection_is_that_of_the_papers_algorithm() -> None:
    generator = torch.Generator().manual_seed(0)
    probability = torch.rand(20, 5, dtype=torch.float64, generator=generator).softmax(-1)
    return_ = torch.randn(20, dtype=torch.float64, generator=generator)
    discount = torch.rand(20, dtype=torch.float64, generator=generator)
    expected = [slow_projection(p, float(r), float(d)) for p, r, d in zip(probability, return_, discount, strict=True)]
    assert_close(
        project_distribution(probability, return_, discount, SUPPORT), torch.stack(expected), rtol=1e-12, atol=1e-14
    )


def test_nothing_follows_so_all_mass_lies_at_the_return() -> None:
    found = project_distribution(torch.full((1, 5), 0.2, dtype=torch.float64), numbers(0.25), numbers(0), SUPPORT)
    assert_close(found, numbers(0, 0, 0.75, 0.25, 0).unsqueeze(0))


def test_a_return_beyond_the_support_lies_at_its_end() -> None:
    found = project_distribution(torch.full((1, 5), 0.2, dtype=torch.float64), numbers(9), numbers(1), SUPPORT)
    assert_close(found, numbers(0, 0, 0, 0, 1).unsqueeze(0))


def test_quantile_huber_is_its_double_sum() -> None:
    generator = torch.Generator().manual_seed(0)
    quantile, target = (torch.randn(6, n, dtype=torch.float64, generator=generator) for n in (4, 3))
    expected = torch.zeros(6, dtype=torch.float64)
    for i in range(4):
        for j in range(3):
            error = target[:, j] - quantile[:, i]
            expected += ((i + 0.5) / 4 - (error < 0).double()).abs() * huber(error, 0.5) / 0.5 / 3
    assert_close(quantile_huber(quantile, target, delta=0.5), expected, rtol=1e-12, atol=0)


def test_quantile_regression_finds_the_quantiles() -> None:
    target = torch.linspace(0, 1, 1001, dtype=torch.float64).unsqueeze(0)
    quantile = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    for _ in range(400):
        (gradient,) = torch.autograd.grad(quantile_huber(quantile, target, delta=0.01).sum(), quantile)
        quantile = (quantile - 0.05 * gradient).detach().requires_grad_()
    assert_close(quantile.detach(), numbers(0.25, 0.75).unsqueeze(0), rtol=0, atol=0.01)


@pytest.mark.parametrize("error", [-1e4, 1e4])
def test_large_errors_have_bounded_gradients(error: float) -> None:
    value = numbers(error).requires_grad_()
    (gradient,) = torch.autograd.grad(huber(value).sum(), value)
    assert gradient.abs() == 1


def test_values_are_compressed_and_restored() -> None:
    value = numbers(-1e4, -3, -0.1, 0, 8, 100, 1e6)
    assert_close(rescaled_value(numbers(0, 3, -3, 99)), numbers(0, 1.003, -1.003, 9.099))
    assert_close(unscaled_value(rescaled_value(value)), value, rtol=1e-9, atol=1e-9)


def test_the_priority_of_a_sequence_mixes_its_largest_and_mean_error_of_the_steps_that_count() -> None:
    error = numbers(1, 5, 9).view(1, 3, 1).repeat(1, 1, 2)
    counts = torch.ones_like(error)
    counts[0, 2, 1] = 0
    assert_close(sequence_priority(error, counts), numbers(0.9 * 9 + 0.1 * 5, 0.9 * 5 + 0.1 * 3).unsqueeze(0))
    assert_close(sequence_priority(error, counts * 0), numbers(0, 0).unsqueeze(0))
