"""The loss with its gradients in closed form against the readable functions and autograd."""

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from modules.functional.policy_gradient import clipped_value_loss, masked_mean, ppo_loss
from modules.manual_backward.ppo_gradients import LossGradients, ppo_gradients

SETTINGS = [*itertools.product([None, 0.1], [0.0, 0.02], [False, True])]


def entries(shape: tuple[int, ...] = (64,)) -> dict[str, Tensor]:
    """Log-probability, entropy and value to learn, and what was stored: ratios and moves on both sides of the clips."""
    torch.manual_seed(0)
    names = ("log_prob", "entropy", "value", "old_log_prob", "old_value", "advantage", "target")
    x = {name: torch.randn(shape, dtype=torch.float64) * 0.3 for name in names}
    return {name: each.requires_grad_(name in names[:3]) for name, each in x.items()}


def plain(
    x: dict[str, Tensor], valid: Tensor | None, value_clip_range: float | None, weight: float
) -> tuple[Tensor, Tensor]:
    policy = ppo_loss(x["log_prob"], x["old_log_prob"], x["advantage"], clip=0.2, valid=valid)
    value = clipped_value_loss(x["value"], x["old_value"], x["target"], clip=value_clip_range, valid=valid)
    entropy = masked_mean(x["entropy"], valid)
    metrics = torch.stack([policy.loss, value, entropy, policy.approx_kl, policy.clip_fraction])
    return policy.loss + 0.7 * value - weight * entropy, metrics


def closed(x: dict[str, Tensor], **settings: Any) -> LossGradients:
    return ppo_gradients(**{name: each.detach() for name, each in x.items()}, **settings)


@pytest.mark.parametrize(("value_clip_range", "entropy_coef", "masked"), SETTINGS)
def test_measures_and_gradients_are_those_of_the_plain_composition(
    value_clip_range: float | None, entropy_coef: float, masked: bool
) -> None:
    x = entries((8, 8))
    valid = torch.rand(8, 8) > 0.3 if masked else None
    settings = {"value_clip_range": value_clip_range, "entropy_coef": entropy_coef, "valid": valid}

    expected, expected_metrics = plain(x, valid, value_clip_range, entropy_coef)
    found = closed(x, clip=torch.tensor(0.2), value_loss_coef=0.7, **settings)

    learned = [x["log_prob"], x["entropy"], x["value"]]
    by_log_prob, by_entropy, by_value = torch.autograd.grad(expected, learned, materialize_grads=True)
    assert_close(found.metrics, expected_metrics.detach(), rtol=1e-6, atol=1e-9)
    assert_close((found.grad_log_prob, found.grad_value), (by_log_prob, by_value), rtol=1e-6, atol=1e-9)
    grad_entropy = torch.zeros_like(by_entropy) if found.grad_entropy is None else found.grad_entropy.double()
    assert_close(grad_entropy, by_entropy, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(("ratio", "advantage", "loss"), [(1.5, -1.0, 1.5), (0.5, -1.0, 0.8), (1.5, 1.0, -1.2)])
def test_the_surrogate_is_pessimistic_about_the_ratio(ratio: float, advantage: float, loss: float) -> None:
    zero = torch.zeros(1)

    stored = {"old_log_prob": zero, "old_value": zero, "advantage": zero + advantage, "target": zero}
    found = ppo_gradients(torch.tensor([ratio]).log(), zero, zero, **stored, clip=0.2)

    assert_close(found.metrics[0], torch.tensor(loss))
    assert bool(found.grad_log_prob) == (ratio == 1.5 and advantage < 0)


@pytest.mark.parametrize("wild", [torch.nan, torch.inf, 1e30])
def test_what_stands_in_invalid_entries_has_no_effect(wild: float) -> None:
    x, valid = entries(), torch.arange(64) % 3 > 0
    settings = {"clip": 0.2, "value_clip_range": 0.1, "entropy_coef": 0.1, "valid": valid}
    tame = closed(x, **settings)

    found = closed({name: each.detach().masked_fill(~valid, wild) for name, each in x.items()}, **settings)

    gradients = (found.grad_log_prob, found.grad_value, found.grad_entropy)
    assert torch.equal(found.metrics, tame.metrics)
    assert all(each is not None and each.isfinite().all() and not each[~valid].any() for each in gradients)


def test_no_valid_entry_gives_zero_and_no_gradient() -> None:
    found = closed(entries(), clip=0.2, entropy_coef=0.1, valid=torch.zeros(64, dtype=torch.bool))

    assert not found.metrics.any()
    assert not (found.grad_log_prob.any() or found.grad_value.any())
