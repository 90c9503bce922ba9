"""Independent normals: torch.distributions says the same, in float32 too, and nothing that was passed in changes."""

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from modules.functional.dynamics.gaussian import divergence, log_density, sample


def moments(*shape: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(*shape, dtype=torch.float64, generator=generator)
    return mean, torch.randn(*shape, dtype=torch.float64, generator=generator).mul(3).exp()


def test_the_divergence_is_that_of_torch() -> None:
    q, p = moments(4, 5, 3), moments(5, 3, seed=1)

    expected = kl_divergence(Normal(q[0], q[1].sqrt()), Normal(p[0], p[1].sqrt()))

    torch.testing.assert_close(divergence(*q, *p), expected)


def test_the_density_is_that_of_torch() -> None:
    mean, variance = moments(5, 3)
    x = torch.randn(4, 5, 3, dtype=torch.float64)

    torch.testing.assert_close(log_density(x, mean, variance), Normal(mean, variance.sqrt()).log_prob(x))


def test_draws_are_the_noise_stretched_and_moved() -> None:
    mean, variance = moments(5, 3)
    noise = torch.randn(4, 5, 3, dtype=torch.float64)

    torch.testing.assert_close(sample(mean, variance, noise), mean + variance.sqrt() * noise)
    assert torch.equal(sample(mean, variance, torch.zeros_like(mean)), mean)


def test_draws_carry_gradients_to_both_moments() -> None:
    mean, variance = (part.requires_grad_() for part in moments(3))
    noise = torch.randn(3, dtype=torch.float64)

    assert torch.autograd.gradcheck(lambda m, v: sample(m, v, noise), (mean, variance))


def test_the_divergence_counts_every_dimension_of_near_equals_to_float32s_precision() -> None:
    variance = torch.rand(10_000) + 0.1
    near = variance * (1 + 3e-3 * torch.randn(10_000))
    zero, aside = torch.zeros(1), torch.full((1,), 1e-3)

    found = divergence(aside, near, zero, variance)

    assert found.min() >= 0
    assert not divergence(zero, variance, zero, variance).any()
    expected = divergence(aside.double(), near.double(), zero.double(), variance.double())
    torch.testing.assert_close(found.double(), expected, rtol=1e-2, atol=1e-9)


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3])
def test_float32_keeps_the_digits_of_narrow_and_wide_normals(scale: float) -> None:
    q, p = moments(50), moments(50, seed=1)
    exact = [q[0] * scale**0.5, q[1] * scale, p[0] * scale**0.5, p[1]]

    torch.testing.assert_close(
        divergence(*(part.float() for part in exact)).double(), divergence(*exact), rtol=1e-5, atol=1e-6
    )


def test_no_argument_is_changed() -> None:
    mean, variance = moments(2, 3)
    before = mean.clone(), variance.clone()

    drawn = sample(mean, variance, torch.ones_like(mean)).zero_()
    log_density(drawn, mean, variance).zero_()
    divergence(mean, variance, drawn, variance).zero_()

    assert torch.equal(mean, before[0]) and torch.equal(variance, before[1])
