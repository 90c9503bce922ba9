"""The loss with its gradients written out against the readable functions and autograd."""

import itertools

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from modules.functional.policy_gradient import clipped_value_loss, masked_mean, ppo_loss
from modules.functional.ppo_objective import ppo_objective

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
    measures = torch.stack([policy.loss, value, entropy, policy.approx_kl, policy.clip_fraction])
    return policy.loss + 0.7 * value - weight * entropy, measures


@pytest.mark.parametrize(("value_clip_range", "entropy_coef", "masked"), SETTINGS)
def test_loss_measures_and_gradients_are_those_of_the_plain_composition(
    value_clip_range: float | None, entropy_coef: float, masked: bool
) -> None:
    x = entries((8, 8))
    valid = torch.rand(8, 8) > 0.3 if masked else None

    expected, expected_measures = plain(x, valid, value_clip_range, entropy_coef)
    loss, measures = ppo_objective(
        **x,
        clip=torch.tensor(0.2),
        value_clip_range=value_clip_range,
        value_loss_coef=0.7,
        entropy_coef=entropy_coef,
        valid=valid,
    )

    learned = [x["log_prob"], x["entropy"], x["value"]]
    gradients = torch.autograd.grad(3 * loss, learned, materialize_grads=True)
    assert_close(loss, expected, rtol=1e-6, atol=1e-9)
    assert_close(measures, expected_measures, rtol=1e-6, atol=1e-9)
    assert_close(gradients, torch.autograd.grad(3 * expected, learned, materialize_grads=True), rtol=1e-6, atol=1e-9)
    assert not measures.requires_grad


@pytest.mark.parametrize(("ratio", "advantage", "loss"), [(1.5, -1.0, 1.5), (0.5, -1.0, 0.8), (1.5, 1.0, -1.2)])
def test_the_surrogate_is_pessimistic_about_the_ratio(ratio: float, advantage: float, loss: float) -> None:
    zero = torch.zeros(1)
    log_prob = torch.tensor([ratio]).log().requires_grad_()

    stored = {"old_log_prob": zero, "old_value": zero, "advantage": zero + advantage, "target": zero}
    found = ppo_objective(log_prob, zero, zero, **stored, clip=0.2)

    assert_close(found.loss, torch.tensor(loss))
    (gradient,) = torch.autograd.grad(found.loss, log_prob)
    assert bool(gradient) == (ratio == 1.5 and advantage < 0)


@pytest.mark.parametrize("wild", [torch.nan, torch.inf, 1e30])
def test_what_stands_in_invalid_entries_has_no_effect(wild: float) -> None:
    x, valid = entries(), torch.arange(64) % 3 > 0
    tame = ppo_objective(**x, clip=0.2, value_clip_range=0.1, entropy_coef=0.1, valid=valid)

    leaves = {name: each.detach().masked_fill(~valid, wild).requires_grad_() for name, each in x.items()}
    found = ppo_objective(**leaves, clip=0.2, value_clip_range=0.1, entropy_coef=0.1, valid=valid)

    gradients = torch.autograd.grad(found.loss, [leaves["log_prob"], leaves["entropy"], leaves["value"]])
    assert torch.equal(found.loss, tame.loss) and torch.equal(found.measures, tame.measures)
    assert all(gradient.isfinite().all() and not gradient[~valid].any() for gradient in gradients)


def test_no_valid_entry_gives_zero_and_no_gradient() -> None:
    x = entries()
    found = ppo_objective(**x, clip=0.2, entropy_coef=0.1, valid=torch.zeros(64, dtype=torch.bool))

    assert float(found.loss) == 0 and not found.measures.any()
    assert not any(each.any() for each in torch.autograd.grad(found.loss, [x["log_prob"], x["entropy"], x["value"]]))


@pytest.mark.parametrize("masked", [False, True])
def test_it_is_one_graph_for_a_compiler_gradients_included(masked: bool) -> None:
    x, valid = entries(), torch.arange(64) % 3 > 0 if masked else None
    settings = {"value_clip_range": 0.1, "entropy_coef": 0.1, "valid": valid}

    compiled = torch.compile(ppo_objective, fullgraph=True, backend="aot_eager")(
        **x, clip=torch.tensor(0.2), **settings
    )
    eager = ppo_objective(**x, clip=torch.tensor(0.2), **settings)

    learned = [x["log_prob"], x["entropy"], x["value"]]
    assert_close(tuple(compiled), tuple(eager))
    assert_close(*(torch.autograd.grad(found.loss, learned) for found in (compiled, eager)))
