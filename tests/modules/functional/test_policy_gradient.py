"""The clipped surrogate, masked means and normalisation."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from modules.functional.policy_gradient import Moments, masked_mean, moments, normalize, ppo_loss


def double(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected", "gradient"),
    [(1.5, -1.0, 1.5, 1.5), (0.5, -1.0, 0.8, 0.0), (1.5, 1.0, -1.2, 0.0)],
)
def test_ppo_clips_only_what_would_improve_the_surrogate(
    ratio: float, advantage: float, expected: float, gradient: float
) -> None:
    log_prob = double(math.log(ratio)).requires_grad_()

    loss = ppo_loss(log_prob, double(0.0), double(advantage), clip=0.2).loss
    loss.backward()

    torch.testing.assert_close(loss.item(), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(log_prob.grad, double(gradient), rtol=1e-12, atol=0)


def test_approximate_kl_is_the_mean_of_ratio_minus_1_minus_log_ratio() -> None:
    approx_kl = ppo_loss(double(0.1, -0.2), double(0.0, 0.0), double(1.0, 1.0), clip=0.2).approx_kl

    assert approx_kl.item() == pytest.approx(0.0119509, abs=1e-7)


def test_the_unchanged_policy_has_ratio_1_kl_0_and_the_policy_gradient() -> None:
    log_prob = torch.randn(64).requires_grad_()
    advantage = torch.randn(64)

    loss, approx_kl, clip_fraction = ppo_loss(log_prob, log_prob.detach(), advantage, clip=0.2)
    loss.backward()

    torch.testing.assert_close(loss, -advantage.mean())
    torch.testing.assert_close(log_prob.grad, -advantage / 64)
    assert approx_kl.item() == 0.0 and clip_fraction.item() == 0.0


def test_ppo_loss_equals_its_definition() -> None:
    new, old, advantage = torch.randn(3, 50, dtype=torch.float64)

    result = ppo_loss(new, old, advantage, clip=0.3)

    losses, outside = [], 0
    for a, b, weight in zip(new.tolist(), old.tolist(), advantage.tolist(), strict=True):
        ratio = math.exp(a - b)
        losses.append(-min(ratio * weight, min(max(ratio, 0.7), 1.3) * weight))
        outside += not 0.7 <= ratio <= 1.3
    torch.testing.assert_close(result.loss.item(), math.fsum(losses) / 50, rtol=1e-12, atol=0)
    assert result.clip_fraction.item() == outside / 50


def test_the_clip_range_may_be_a_tensor_that_is_annealed() -> None:
    new, old, advantage = torch.randn(3, 50)

    by_tensor = ppo_loss(new, old, advantage, clip=torch.tensor(0.2))

    torch.testing.assert_close(by_tensor, ppo_loss(new, old, advantage, clip=0.2))


def test_invalid_entries_touch_neither_the_loss_nor_the_gradient() -> None:
    valid = torch.tensor([True, False, True])
    log_prob = double(0.1, 900.0, -0.2).requires_grad_()

    masked = ppo_loss(log_prob, double(0.0, -900.0, 0.0), double(1.0, math.nan, -1.0), clip=0.2, valid=valid)
    masked.loss.backward()

    alone = ppo_loss(double(0.1, -0.2), double(0.0, 0.0), double(1.0, -1.0), clip=0.2)
    torch.testing.assert_close([part.item() for part in masked], [part.item() for part in alone])
    assert log_prob.grad is not None and log_prob.grad.isfinite().all() and log_prob.grad[1] == 0


def test_masked_mean_counts_the_valid_entries_only() -> None:
    x = double(1.0, math.nan, 4.0)

    assert masked_mean(x, torch.tensor([True, False, True])).item() == 2.5
    assert masked_mean(x, torch.tensor([False, False, True])).item() == 4.0
    assert masked_mean(x, torch.zeros(3, dtype=torch.bool)).item() == 0.0


@pytest.mark.parametrize("advantage", [[3.7], [0.1] * 7, [1e6] * 5], ids=["one sample", "constant", "large constant"])
def test_normalised_advantages_are_finite_for_one_sample_and_for_constants(advantage: list[float]) -> None:
    result = normalize(torch.tensor(advantage))

    assert torch.equal(result, torch.zeros(len(advantage)))


@given(st.integers(0, 1000), st.floats(-1e3, 1e3), st.floats(1e-2, 1e3))
@settings(max_examples=30, deadline=None)
def test_normalised_has_mean_0_and_deviation_1_over_the_valid_entries(seed: int, shift: float, scale: float) -> None:
    random = torch.Generator().manual_seed(seed)
    valid = torch.arange(40) % 3 > 0
    x = torch.randn(40, generator=random, dtype=torch.float64) * scale + shift

    result = normalize(torch.where(valid, x, math.nan), valid)[valid]

    assert result.mean().item() == pytest.approx(0.0, abs=1e-6)
    assert result.std(correction=0).item() == pytest.approx(1.0, abs=1e-5)


def test_normalised_over_the_sums_of_all_ranks_equals_normalising_everything() -> None:
    x = torch.randn(100, dtype=torch.float64) * 3 + 5
    ranks = x[:30], x[30:]

    together = Moments(*(sum(sums) for sums in zip(*map(moments, ranks), strict=True)))

    parts = [normalize(rank, moments=together) for rank in ranks]
    torch.testing.assert_close(torch.cat(parts), normalize(x), rtol=1e-12, atol=1e-13)
