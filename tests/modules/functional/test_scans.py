"""Parallel scans against the recurrence, step by step, in float64."""

import pytest
import torch
from torch import Tensor

from modules.functional.scans import linear_scan


def slow_scan(keep: Tensor, enter: Tensor, state: Tensor) -> Tensor:
    """One step after the other."""
    states = []
    for factor, each in zip(keep, enter, strict=True):
        state = factor * state + each
        states.append(state)
    return torch.stack(states)


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 33])
def test_all_states_and_gradients_are_those_of_a_slow_loop(length: int) -> None:
    keep = torch.rand(length, 4, dtype=torch.float64).requires_grad_()
    enter = torch.randn(length, 4, dtype=torch.float64).requires_grad_()
    state = torch.randn(4, dtype=torch.float64).requires_grad_()
    weight = torch.randn(length, 4, dtype=torch.float64)

    found, expected = linear_scan(keep, enter, state), slow_scan(keep, enter, state)

    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-14)
    for ours, theirs in zip(
        torch.autograd.grad((weight * found).sum(), (keep, enter, state)),
        torch.autograd.grad((weight * expected).sum(), (keep, enter, state)),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-13)


def test_a_factor_of_zero_forgets_everything_before_it() -> None:
    keep, enter = torch.full((6, 1), 0.9), torch.zeros(6, 1)
    keep[3] = 0.0

    states = linear_scan(keep, enter, torch.ones(1))

    assert states[2] == pytest.approx(0.9**3) and not states[3:].any()
