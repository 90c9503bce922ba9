"""Information gains against brute-force determinants and inverses, in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from modules.functional.dynamics.information_gain import (
    Weights,
    a_optimality,
    cholesky_by_columns,
    d_optimality,
    disagreement,
    fisher_rows,
    information_gain,
    optimistic_gain,
    posterior_from_sums,
    posterior_update,
)

SEEDS = st.integers(0, 10_000)
VARIANCE = 0.05


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def positive(seed: int, size: int) -> Tensor:
    root = normal(seed, size, size)
    return root @ root.T + 0.1 * torch.eye(size, dtype=torch.float64)


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_the_gain_is_the_brute_force_change_of_the_weights_determinant(seed: int) -> None:
    features, covariance = normal(seed, 5, 7, 12), positive(seed + 1, 12)

    gain = information_gain(features, covariance, variance=VARIANCE, outputs=3).sum(-1)

    precision = covariance.inverse() + features.transpose(-1, -2) @ features / VARIANCE
    torch.testing.assert_close(gain, 3 * (precision.logdet() + covariance.logdet()), rtol=1e-9, atol=1e-6)


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_steps_gain_what_the_longer_path_has_more(seed: int) -> None:
    features, covariance = normal(seed, 6, 9), positive(seed + 1, 9)

    steps = information_gain(features, covariance, variance=VARIANCE, outputs=1)

    shorter = information_gain(features[:4], covariance, variance=VARIANCE, outputs=1)
    torch.testing.assert_close(steps[:4], shorter)


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_gains_are_never_negative_even_in_float32_from_a_known_state(seed: int) -> None:
    features = normal(seed, 4, 15, 20).float()
    known = posterior_update(
        Weights(torch.zeros(20, 1), torch.eye(20)), features[0].repeat(30, 1), torch.zeros(450, 1), variance=1e-3
    )

    gain = information_gain(features, known.covariance, variance=VARIANCE, outputs=2)

    assert (gain >= 0).all()


def test_a_second_visit_gains_less() -> None:
    path, prior = normal(3, 1, 5, 10), Weights(torch.zeros(10, 1, dtype=torch.float64), positive(4, 10))

    once = posterior_update(prior, path[0], torch.zeros(5, 1, dtype=torch.float64), variance=VARIANCE)

    first = information_gain(path, prior.covariance, variance=VARIANCE, outputs=1).sum()
    second = information_gain(path, once.covariance, variance=VARIANCE, outputs=1).sum()
    assert 0 < second < first


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_the_gain_is_submodular(seed: int) -> None:
    """What a path teaches is less after another one: f(A) + f(B) >= f(A and B)."""
    path, other, covariance = normal(seed, 4, 8), normal(seed + 1, 4, 8), positive(seed + 2, 8)

    both = information_gain(torch.cat([path, other]), covariance, variance=VARIANCE, outputs=1).sum()

    alone = information_gain(torch.stack([path, other]), covariance, variance=VARIANCE, outputs=1).sum()
    assert both <= alone + 1e-9


def test_a_thousand_rank_one_updates_equal_the_inverse() -> None:
    features, target = normal(0, 1000, 30) / 3, normal(1, 1000, 2)
    weights = Weights(torch.zeros(30, 2, dtype=torch.float64), 10 * torch.eye(30, dtype=torch.float64))

    for t in range(1000):
        weights = posterior_update(weights, features[t : t + 1], target[t : t + 1], variance=VARIANCE)

    precision = torch.eye(30, dtype=torch.float64) / 10 + features.T @ features / VARIANCE
    torch.testing.assert_close(weights.covariance, precision.inverse(), rtol=0, atol=1e-6)
    torch.testing.assert_close(weights.mean, precision.inverse() @ features.T @ target / VARIANCE, rtol=0, atol=1e-6)
    torch.testing.assert_close(
        posterior_from_sums(precision, features.T @ target / VARIANCE), weights, rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("size", [2, 40])
def test_many_observations_at_once_equal_one_after_the_other(size: int) -> None:
    features, target = normal(0, size, 10), normal(1, size, 2)
    one = many = Weights(normal(2, 10, 2), positive(3, 10))

    for t in range(size):
        one = posterior_update(one, features[t : t + 1], target[t : t + 1], variance=VARIANCE)

    torch.testing.assert_close(one, posterior_update(many, features, target, variance=VARIANCE), rtol=1e-8, atol=1e-8)


def test_fisher_information_of_weights_seen_without_noise_is_the_information_gain() -> None:
    """With a known state, everything observed and no memory (F = 0), both describe one Bayesian regression."""
    features, covariance, eye = normal(0, 6, 4), positive(1, 4), torch.ones(6, 1, 1, dtype=torch.float64)
    noise, none = torch.tensor([VARIANCE], dtype=torch.float64), torch.zeros(6, 1, dtype=torch.float64)

    rows = fisher_rows(
        0 * eye, features.unsqueeze(1), eye, process_noise=noise, observation_noise=none, uncertainty=0 * eye[0]
    )

    gain = information_gain(features, covariance, variance=VARIANCE, outputs=1)
    torch.testing.assert_close(d_optimality(rows, covariance, steps=6), gain)


def test_fisher_information_of_a_constant_drift_is_that_of_the_joint_gaussian() -> None:
    """z' = z + theta seen for 15 steps: 22,896, where variances that forget what was seen give 1,226."""
    one = torch.ones(15, 1, 1, dtype=torch.float64)

    rows = fisher_rows(
        one,
        one,
        one,
        process_noise=torch.tensor([1e-4], dtype=torch.float64),
        observation_noise=0.01 * one[..., 0],
        uncertainty=one[0],
    )

    assert float(rows.square().sum()) == pytest.approx(22_896, abs=1)
    times = torch.arange(1, 16).double()
    phase = 1.0 + 1e-4 * torch.minimum(times, times[:, None]) + 0.01 * torch.eye(15).double()
    assert float(rows.square().sum()) == pytest.approx(float(times @ phase.inverse() @ times), rel=1e-10)


def seen_on(path: tuple[Tensor, Tensor, Tensor], theta: Tensor, start: Tensor, shocks: Tensor) -> Tensor:
    """The observations `[H O]` of a path without observation noise: z' = F z + F_theta theta + shock, y = H z'."""
    state, seen = start, []
    for forward, by_theta, observe, shock in zip(*path, shocks, strict=True):
        state = forward @ state + by_theta @ theta + shock
        seen.append(observe @ state)
    return torch.cat(seen)


@pytest.mark.parametrize(("dimensions", "outputs"), [(2, 4), (3, 1), (2, 2)])
def test_fisher_information_equals_that_of_all_observations_at_once(dimensions: int, outputs: int) -> None:
    """Finite sensitivities of a simulated path give mean and covariance of all H O observations; then M^T S^-1 M."""
    steps, count = 5, 4
    path = (
        normal(0, steps, dimensions, dimensions),
        normal(1, steps, dimensions, count),
        normal(2, steps, outputs, dimensions),
    )
    state, q, r = positive(3, dimensions), normal(4, dimensions).square(), 0.1 + normal(5, steps, outputs).square()
    sources = (count, dimensions, steps * dimensions)
    impulses = torch.eye(sum(sources), dtype=torch.float64).split(sources, dim=1)
    parts = zip(*impulses, strict=True)
    by = torch.stack([seen_on(path, a, b, c.view(steps, dimensions)) for a, b, c in parts], 1)
    by_theta, by_start, by_shocks = by.split(sources, dim=1)
    spread = by_start @ state @ by_start.T + (by_shocks * q.repeat(steps)) @ by_shocks.T + torch.diag(r.flatten())

    rows = fisher_rows(*path, process_noise=q, observation_noise=r, uncertainty=state)

    for size in range(outputs, steps * outputs + 1, outputs):
        expected = by_theta[:size].T @ spread[:size, :size].inverse() @ by_theta[:size]
        torch.testing.assert_close(rows[:size].T @ rows[:size], expected, rtol=1e-9, atol=1e-9)


def test_fisher_information_stays_finite_in_float32_where_observations_are_almost_exact() -> None:
    forward, by_theta, observe = normal(0, 8, 20, 3, 3) / 2, normal(1, 8, 20, 3, 6), normal(2, 8, 20, 5, 3)
    settings = {"process_noise": torch.full((3,), 1e-6), "observation_noise": torch.full((8, 20, 5), 1e-4)}

    exact, rows = (
        fisher_rows(
            *(each.to(dtype) for each in (forward, by_theta, observe)),
            **{name: value.to(dtype) for name, value in settings.items()},
            uncertainty=torch.eye(3, dtype=dtype),
        )
        for dtype in (torch.float64, torch.float32)
    )

    assert rows.isfinite().all()
    information, expected = (each.double().square().sum((-1, -2)) for each in (rows, exact))
    torch.testing.assert_close(information, expected, rtol=0.05, atol=0)


@given(seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_optimality_criteria_equal_determinant_and_trace(seed: int) -> None:
    rows, block = normal(seed, 2, 6, 8), positive(seed + 1, 4)
    prior = torch.block_diag(block, block)

    d, a = d_optimality(rows, block, steps=3), a_optimality(rows, block, steps=3)

    posterior = (prior.inverse() + rows.transpose(-1, -2) @ rows).inverse()
    torch.testing.assert_close(d.sum(-1), prior.logdet() - posterior.logdet())
    torch.testing.assert_close(a.sum(-1), prior.trace() - posterior.diagonal(dim1=-2, dim2=-1).sum(-1))
    torch.testing.assert_close(a[:, :2], a_optimality(rows[:, :4], block, steps=2))


def test_disagreement_is_measured_in_units_of_the_noise() -> None:
    predictions = torch.tensor([[[0.0, 0.0]], [[2.0, 4.0]]])
    variance = torch.tensor([1.0, 4.0])

    assert disagreement(predictions, variance).tolist() == [1.0]
    torch.testing.assert_close(optimistic_gain(predictions, variance), torch.tensor([2 * torch.tensor(2.0).log()]))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)], ids=str)
def test_factors_made_column_by_column_are_the_library_s(dtype: torch.dtype, tolerance: float):
    root = torch.randn(7, 15, 20, dtype=torch.float64)
    matrix = root @ root.transpose(-1, -2)

    factor = cholesky_by_columns(matrix.to(dtype))

    torch.testing.assert_close(factor.double(), torch.linalg.cholesky(matrix), rtol=tolerance, atol=tolerance)
