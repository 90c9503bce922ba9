"""Soft values, the squashed density and the temperature, against their definitions."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Normal, TransformedDistribution
from torch.distributions.transforms import AffineTransform, TanhTransform

from modules.functional.soft_actor_critic import (
    expected_soft_value,
    log_tanh_slope,
    reparametrised_log_prob,
    soft_q_target,
    soft_value,
    squashed_log_prob,
    temperature_loss,
)


def number(value: float) -> Tensor:
    return torch.tensor([value], dtype=torch.float64)


def test_the_target_takes_the_lower_critic_and_pays_for_entropy() -> None:
    arguments = number(1.0), number(5.0), number(4.0), number(-1.5), 0.2

    assert soft_q_target(*arguments, torch.tensor([False]), gamma=0.9).item() == pytest.approx(4.87, rel=1e-12)
    assert soft_q_target(*arguments, torch.tensor([True]), gamma=0.9).item() == 1.0


def test_the_target_equals_its_definition() -> None:
    reward, q1, q2, log_prob = torch.randn(4, 30, dtype=torch.float64)
    terminated, gamma = torch.rand(30) < 0.3, torch.rand(30, dtype=torch.float64)

    target = soft_q_target(reward, q1, q2, log_prob, 0.3, terminated, gamma=gamma)

    rows = zip(*(x.tolist() for x in (reward, q1, q2, log_prob, terminated, gamma)), strict=True)
    expected = [r + (0.0 if end else g * (min(a, b) - 0.3 * lp)) for r, a, b, lp, end, g in rows]
    torch.testing.assert_close(target, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)


def test_the_value_over_all_choices_is_the_mean_of_the_values_of_single_ones() -> None:
    q1, q2, logits = torch.randn(3, 20, 5, dtype=torch.float64)
    log_probs = logits.log_softmax(-1)

    value = expected_soft_value(q1, q2, log_probs, 0.7)

    singles = soft_value(q1, q2, log_probs, 0.7)
    torch.testing.assert_close(value, (log_probs.exp() * singles).sum(-1), rtol=1e-12, atol=1e-12)


def test_a_masked_choice_adds_nothing_to_the_value() -> None:
    q, logits = torch.randn(2, 20, 4)
    masked = torch.cat([logits, torch.full((20, 1), -1e8)], -1).log_softmax(-1)
    absurd = torch.cat([q, torch.full((20, 1), 1e6)], -1)

    with_mask = expected_soft_value(absurd, absurd, masked, 0.5)

    torch.testing.assert_close(with_mask, expected_soft_value(q, q, logits.log_softmax(-1), 0.5))


@pytest.mark.parametrize(("u", "expected"), [(0.0, -0.918939), (3.0, -0.80028), (10.0, -32.30523), (20.0, -162.3052)])
def test_the_squashed_log_density_is_stable_far_out(u: float, expected: float) -> None:
    pre_tanh, zero = torch.tensor([[u]]), torch.zeros(1, 1)

    assert squashed_log_prob(pre_tanh, zero, zero).item() == pytest.approx(expected, rel=1e-5)


def test_the_squashed_log_density_agrees_with_torch() -> None:
    u, mean, log_std = torch.randn(3, 40, 2, dtype=torch.float64)
    scale = torch.tensor([2.0, 0.5], dtype=torch.float64)
    transforms = [TanhTransform(), AffineTransform(torch.tensor([1.0, -3.0], dtype=torch.float64), scale)]
    reference = TransformedDistribution(Normal(mean, log_std.exp()), transforms)

    ours = squashed_log_prob(u, mean, log_std, scale=scale)

    action = torch.tensor([1.0, -3.0], dtype=torch.float64) + scale * u.tanh()
    torch.testing.assert_close(ours, reference.log_prob(action).sum(-1), rtol=1e-6, atol=1e-6)


def test_densities_of_many_options_are_those_of_each() -> None:
    pre_tanh, mean, log_std = torch.randn(3, 5, 4, 2, dtype=torch.float64)

    together = squashed_log_prob(pre_tanh, mean, log_std, scale=torch.tensor([2.0, 0.5]))

    each = [
        squashed_log_prob(*parts, scale=torch.tensor([2.0, 0.5])) for parts in zip(pre_tanh, mean, log_std, strict=True)
    ]
    torch.testing.assert_close(together, torch.stack(each))


def test_a_density_over_a_wider_box_integrates_to_one() -> None:
    u = torch.linspace(-8, 8, 200_001, dtype=torch.float64).unsqueeze(-1)
    mean, log_std = torch.full_like(u, 0.3), torch.full_like(u, -0.2)

    density = squashed_log_prob(u, mean, log_std, scale=2.0).exp()

    assert torch.trapezoid(density, 2.0 * u.squeeze(-1).tanh()).item() == pytest.approx(1.0, abs=1e-6)


def test_the_density_of_a_sample_and_its_gradient_need_no_division_by_the_deviation() -> None:
    noise = torch.randn(30, 2, dtype=torch.float64)
    mean, log_std = (torch.randn(30, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    pre_tanh = mean + log_std.exp() * noise

    ours, reference = (
        reparametrised_log_prob(pre_tanh, noise, log_std),
        squashed_log_prob(pre_tanh, mean, log_std),
    )

    gradients = [torch.autograd.grad(each.sum(), (mean, log_std), retain_graph=True) for each in (ours, reference)]
    torch.testing.assert_close(ours, reference, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-10)


@given(st.floats(-300, 300))
def test_the_slope_of_tanh_is_finite_and_even(u: float) -> None:
    here, mirrored = log_tanh_slope(number(u)).item(), log_tanh_slope(number(-u)).item()

    assert math.isfinite(here) and here == pytest.approx(mirrored, rel=1e-9, abs=1e-9)


def test_the_temperature_falls_where_the_policy_is_too_random() -> None:
    log_alpha = torch.zeros((), requires_grad=True)

    temperature_loss(log_alpha, torch.tensor([0.5]), -1.0).backward()

    assert log_alpha.grad is not None and log_alpha.grad.item() == pytest.approx(1.5)
