"""Probabilistic PCA, boxes of observations, and generalised least squares, against what is known exactly."""

import math

import pytest
import torch
from torch import Tensor

from modules.functional.dynamics.linear_gaussian import (
    LinearGaussian,
    box_extent,
    probabilistic_pca,
    rescale,
    state_sensor,
    whiten_differences,
)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def observations(number: int, noise: float) -> tuple[Tensor, Tensor]:
    """States `[M, 2]`, and twelve observations of each."""
    random = generator()
    weight = torch.randn(12, 2, generator=random, dtype=torch.float64)
    states = torch.randn(number, 2, generator=random, dtype=torch.float64) * torch.tensor([2.0, 0.5])
    return states, 1 + states @ weight.T + noise * torch.randn(number, 12, generator=random, dtype=torch.float64)


def test_probabilistic_pca_finds_the_covariance_and_the_noise() -> None:
    _, obs = observations(20_000, 0.3)

    found = probabilistic_pca(obs, 2)

    assert float(found.variance) == pytest.approx(0.09, rel=0.02)
    covariance = found.weight @ found.weight.T + found.variance * torch.eye(12)
    torch.testing.assert_close(covariance, torch.cov(obs.T, correction=0), rtol=0.05, atol=0.03)


def test_the_sensor_is_an_affine_map_of_the_state_with_the_error_that_it_states() -> None:
    states, obs = observations(20_000, 0.3)
    sensor = state_sensor(probabilistic_pca(obs, 2))

    estimate = obs @ sensor.weight.T + sensor.bias

    ones = torch.cat([states, torch.ones(len(states), 1)], 1)
    residual = estimate - ones @ torch.linalg.lstsq(ones, estimate).solution
    torch.testing.assert_close(residual.var(0), sensor.variance, rtol=0.1, atol=1e-4)
    torch.testing.assert_close(estimate.var(0), 1 + sensor.variance, rtol=0.05, atol=0)


def test_without_noise_decoding_an_estimate_returns_the_observation() -> None:
    _, obs = observations(50, 0.0)
    model = probabilistic_pca(obs, 2)
    sensor = state_sensor(model)

    torch.testing.assert_close((obs @ sensor.weight.T + sensor.bias) @ model.weight.T + model.mean, obs)


def test_too_few_observations_are_refused() -> None:
    with pytest.raises(ValueError, match="2 dimensions cannot be identified from 2 observations of 12 elements"):
        probabilistic_pca(torch.randn(2, 12), 2)


def test_the_extent_of_a_turned_square_is_its_diagonal() -> None:
    turn = torch.tensor([[1.0, 1.0], [1.0, -1.0]]) / math.sqrt(2)
    model = LinearGaussian(turn, torch.zeros(2), torch.tensor(0.1))

    low, high = box_extent(model, -torch.ones(2), torch.ones(2))

    torch.testing.assert_close(low, torch.full((2,), -math.sqrt(2)), rtol=2e-3, atol=0)
    torch.testing.assert_close(high, torch.full((2,), math.sqrt(2)), rtol=2e-3, atol=0)
    with pytest.raises(ValueError, match="lies outside the box"):
        box_extent(model, torch.ones(2), 2 * torch.ones(2))


def test_rescaled_states_have_the_same_observations() -> None:
    model = LinearGaussian(torch.randn(5, 2, generator=generator()), torch.ones(5), torch.tensor(0.1))
    low, high, to = (
        torch.tensor([-1.0, 0.0]),
        torch.tensor([3.0, 2.0]),
        (torch.tensor([-2.0, -2.0]), torch.full((2,), 2.0)),
    )

    scaled = rescale(model, low, high, to)

    for before, after in ((low, to[0]), (high, to[1])):
        torch.testing.assert_close(scaled.weight @ after + scaled.mean, model.weight @ before + model.mean)


def test_the_extent_of_a_box_is_not_bounded_by_an_element_that_never_changes() -> None:
    weight = torch.tensor([[1.0, 0.0], [0.0, 0.5], [0.0, 0.0]])
    model = LinearGaussian(weight, torch.zeros(3), torch.tensor(0.1))

    low, high = box_extent(model, -torch.ones(3), torch.ones(3))

    expected = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(high, expected, rtol=1e-2, atol=0)
    torch.testing.assert_close(low, -expected, rtol=1e-2, atol=0)


@pytest.mark.parametrize("sensor", [0.0, 0.02, 3.0])
def test_whitened_columns_are_those_of_the_inverse_cholesky_factor_of_each_piece(sensor: float) -> None:
    process, random = 0.1, generator()
    columns = torch.randn(9, 2, 3, generator=random, dtype=torch.float64)
    contiguous = torch.ones(9, 2, dtype=torch.bool)
    contiguous[4, 0] = contiguous[0, 1] = contiguous[8, 1] = False

    white = whiten_differences(
        columns, contiguous, process=torch.tensor(process).double(), sensor=torch.tensor(sensor).double()
    )

    expected = torch.zeros_like(columns)
    for row, pieces in ((0, [(0, 4), (5, 9)]), (1, [(1, 8)])):
        for first, last in pieces:
            ones = torch.ones(last - first - 1, dtype=torch.float64)
            covariance = (process + 2 * sensor) * torch.eye(last - first, dtype=torch.float64)
            covariance -= sensor * (torch.diag(ones, 1) + torch.diag(ones, -1))
            factor = torch.linalg.cholesky(covariance)
            expected[first:last, row] = torch.linalg.solve_triangular(factor, columns[first:last, row], upper=False)
    torch.testing.assert_close(white, expected, rtol=1e-6, atol=1e-6)
