"""The value loss and explained variance."""

import math

import pytest
import torch

from modules.functional.policy_gradient import clipped_value_loss, explained_variance


def test_value_loss_takes_the_worse_of_clipped_and_unclipped_and_carries_the_half() -> None:
    value, old_value, target = torch.tensor([[2.0], [1.0], [1.1]], dtype=torch.float64)

    loss = clipped_value_loss(value, old_value, target, clip=0.2)

    assert loss.item() == pytest.approx(0.405, rel=1e-12)


def test_value_loss_has_no_gradient_where_the_clipped_error_is_the_worse() -> None:
    value = torch.tensor([1.5], requires_grad=True)

    clipped_value_loss(value, torch.tensor([1.0]), torch.tensor([2.0]), clip=0.2).backward()

    assert value.grad is not None and value.grad.item() == 0.0


def test_value_loss_without_clip_is_half_the_mean_squared_error() -> None:
    value, old_value, target = torch.randn(3, 20, dtype=torch.float64)

    loss = clipped_value_loss(value, old_value, target, clip=None)

    expected = math.fsum((v - r) ** 2 for v, r in zip(value.tolist(), target.tolist(), strict=True)) / 40
    torch.testing.assert_close(loss.item(), expected, rtol=1e-12, atol=0)


def test_value_loss_equals_its_definition_for_float_and_tensor_clip() -> None:
    value, old_value, target = torch.randn(3, 20, dtype=torch.float64)

    loss = clipped_value_loss(value, old_value, target, clip=0.3)

    errors = []
    for v, old, r in zip(value.tolist(), old_value.tolist(), target.tolist(), strict=True):
        near = old + min(max(v - old, -0.3), 0.3)
        errors.append(max((v - r) ** 2, (near - r) ** 2))
    torch.testing.assert_close(loss.item(), 0.5 * math.fsum(errors) / 20, rtol=1e-12, atol=0)
    by_tensor = clipped_value_loss(value, old_value, target, clip=torch.tensor(0.3, dtype=torch.float64))
    torch.testing.assert_close(by_tensor, loss)


def test_value_loss_ignores_invalid_entries() -> None:
    value, old_value = torch.tensor([2.0, 7.0]), torch.tensor([1.0, 0.0])

    loss = clipped_value_loss(
        value, old_value, torch.tensor([1.1, math.nan]), clip=0.2, valid=torch.tensor([True, False])
    )

    assert loss.item() == pytest.approx(0.405)


def test_explained_variance_is_1_if_perfect_0_if_constant_and_negative_if_worse() -> None:
    target = torch.randn(50)

    assert explained_variance(target, target).item() == 1.0
    assert explained_variance(target.mean().expand(50), target).item() == pytest.approx(0.0, abs=1e-6)
    assert explained_variance(-target, target).item() == pytest.approx(-3.0, rel=1e-5)


def test_explained_variance_of_a_target_that_does_not_vary_is_0() -> None:
    assert explained_variance(torch.randn(5), torch.ones(5)).item() == 0.0
    valid = torch.tensor([True, True, True, False, True])
    assert explained_variance(torch.randn(5), torch.full((5,), 0.1), valid).item() == 0.0
    assert explained_variance(torch.randn(1), torch.ones(1)).item() == 0.0


def test_explained_variance_counts_valid_entries_only() -> None:
    value, target = torch.tensor([1.0, 2.0, 99.0]), torch.tensor([1.0, 2.0, math.nan])

    assert explained_variance(value, target, torch.tensor([True, True, False])).item() == 1.0


@pytest.mark.parametrize("wild", [torch.nan, torch.inf])
@pytest.mark.parametrize("clip", [None, 0.1])
def test_invalid_entries_have_no_gradient_whatever_they_hold(wild: float, clip: float | None) -> None:
    value = torch.tensor([1.0, wild], requires_grad=True)
    target = torch.tensor([0.0, wild])

    clipped_value_loss(value, value.detach(), target, clip=clip, valid=torch.tensor([True, False])).backward()

    assert value.grad is not None
    assert value.grad.tolist() == [1.0, 0.0]
