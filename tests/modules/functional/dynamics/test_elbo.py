"""The evidence lower bound: its definition restated slowly, its weights and its masks."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal, kl_divergence

from modules.functional.dynamics.elbo import (
    LONGEST_GAP,
    StatePosterior,
    Terms,
    fill_masked_states,
    initial_term,
    observed_rows,
    step_weights,
    transition_terms,
    valid_rows,
)

STEPS, SAMPLES, ROWS, SIZE = 6, 3, 4, 2
VARIANCE = torch.tensor([0.3, 0.7], dtype=torch.float64)


def curved(state: Tensor, control: Tensor) -> Tensor:
    """Two nonlinear models, pushed a little differently at every step."""
    return torch.stack([torch.sin(2 * state) + control, state * control])


def example(k: int = 3) -> dict[str, Any]:
    """A posterior, samples of it, inputs and noise."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, ROWS, SIZE, generator=generator, dtype=torch.float64)

    posterior = StatePosterior(normal(STEPS + 1), 0.1 + normal(STEPS + 1).square())
    states = posterior.mean + posterior.variance.sqrt() * normal(SAMPLES, STEPS + 1)
    contiguous, control = torch.ones(STEPS, ROWS, dtype=torch.bool), normal(STEPS)
    return {
        "states": states, "posterior": posterior, "control": control, "contiguous": contiguous, "transition": curved,
        "variance": VARIANCE, "weights": step_weights(k, 0.8), "noise": normal(k - 1, SAMPLES, STEPS),
    }  # fmt: skip


def restated(given: dict[str, Any], seen: Tensor) -> Tensor:
    """`transition_terms` by its definition: one sequence, one start and one number of steps at a time."""
    (mean, variance), contiguous, weights = given["posterior"], given["contiguous"], given["weights"]
    total = torch.zeros((), dtype=torch.float64)
    for n in range(ROWS):
        for t in range(STEPS):
            begins, state = t == 0 or not contiguous[t - 1, n], given["states"][:, t, n]
            for k in range(1, min(len(weights), STEPS - t) + 1):
                if not contiguous[t + k - 1, n]:
                    break
                means = curved(state, given["control"][t + k - 1, n])
                q = Normal(mean[t + k, n], variance[t + k, n].sqrt())
                each = kl_divergence(q, Normal(means, VARIANCE.sqrt())).sum(-1).mean()
                total += (weights[k - 1 :].sum() if begins else weights[k - 1]) * each * seen[t + k, n]
                if k < len(weights):
                    state = means.mean(0) + VARIANCE.sqrt() * given["noise"][k - 1, :, t, n]
    return total


def test_weights_sum_to_one_at_every_call_and_follow_their_arguments() -> None:
    first, second = step_weights(5, 0.8), step_weights(5, 0.8)

    assert torch.equal(first, second) and abs(float(first.sum()) - 1) < 1e-6
    torch.testing.assert_close(first[1:] / first[:-1], torch.full((4,), 0.8))
    assert step_weights(1, 0.3).tolist() == [1.0] and step_weights(2, 1.0).tolist() == [0.5, 0.5]
    assert not torch.equal(first, step_weights(5, 0.5))


@pytest.mark.parametrize(("horizon", "decay"), [(0, 0.8), (5, 0.0), (5, 1.1)])
def test_weights_that_cannot_be_are_refused(horizon: int, decay: float) -> None:
    with pytest.raises(ValueError, match="at least 1, and in"):
        step_weights(horizon, decay)


def test_what_stands_alone_does_not_count_and_what_follows_from_nothing_begins() -> None:
    contiguous = torch.tensor([False, True, True, False, True, False, False]).unsqueeze(1)

    counts, begins = valid_rows(contiguous)

    assert counts.flatten().tolist() == [False, True, True, True, True, True, False, False]
    assert begins.flatten().tolist() == [False, True, False, False, True, False, False, False]


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_terms_are_their_definition(k: int) -> None:
    given, seen = example(k), torch.rand(STEPS + 1, ROWS, generator=torch.Generator().manual_seed(1)) > 0.3
    given["contiguous"][2, 1] = given["contiguous"][0, 2] = given["contiguous"][STEPS - 1, 2] = given["contiguous"][
        1:3, 3
    ] = False

    found = transition_terms(**given, seen=seen)

    torch.testing.assert_close(found, restated(given, seen), rtol=1e-6, atol=1e-6)


def test_one_step_is_the_usual_bound_and_every_state_pays_once_whatever_k() -> None:
    """Dynamics that forget the state predict the same over any number of steps."""
    paid = [
        transition_terms(**example(k) | {"transition": lambda z, _: torch.zeros_like(z).unsqueeze(0)})
        for k in (1, 2, 5)
    ]

    mean, variance = example()["posterior"]
    usual = kl_divergence(Normal(mean[1:], variance[1:].sqrt()), Normal(torch.zeros(SIZE), VARIANCE.sqrt()))
    torch.testing.assert_close(paid, [usual.sum()] * 3, rtol=1e-6, atol=1e-6)


def test_the_first_row_of_every_trajectory_pays_for_not_being_standard_normal() -> None:
    mean, variance = posterior = example()["posterior"]
    begins = torch.zeros(STEPS + 1, ROWS, dtype=torch.bool)
    begins[0, 1] = begins[4, 2] = True

    found = initial_term(posterior, begins)

    each = kl_divergence(Normal(mean, variance.sqrt()), Normal(torch.zeros(SIZE), torch.ones(SIZE))).sum(-1)
    torch.testing.assert_close(found, each[0, 1] + each[4, 2])
    assert Terms(found, 2 * found, 4 * found, torch.tensor(3)).bound(0.5) == -found


def test_seeing_every_row_is_no_mask_bit_for_bit() -> None:
    results = []
    for seen in (None, torch.ones(STEPS + 1, ROWS, dtype=torch.bool)):
        given = example()
        states, mean = given["states"].requires_grad_(), given["posterior"].mean.requires_grad_()
        if seen is not None:
            given["states"] = fill_masked_states(states, seen, given["control"], curved, torch.zeros(()))
        found = transition_terms(**given, seen=seen)
        results.append((given["states"], found, *torch.autograd.grad(found, [mean, states])))

    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_hidden_rows_are_what_the_dynamics_make_of_the_row_before_and_pay_nothing() -> None:
    given, seen = example(), torch.ones(STEPS + 1, ROWS, dtype=torch.bool)
    seen[2:4, 1] = False
    noise = torch.randn(SAMPLES, STEPS, ROWS, SIZE, dtype=torch.float64)

    states = fill_masked_states(given["states"], seen, given["control"], curved, noise)
    given["states"] = states
    before = transition_terms(**given, seen=seen)
    given["posterior"].mean[2:4, 1] += 10

    for row in (2, 3):
        expected = curved(states[:, row - 1, 1], given["control"][row - 1, 1]).mean(0) + noise[:, row - 1, 1]
        torch.testing.assert_close(states[:, row, 1], expected)
    assert torch.equal(states[:, :, 0], example()["states"][:, :, 0])
    assert torch.equal(transition_terms(**given, seen=seen), before)


def test_a_trajectory_is_never_hidden_where_it_begins_nor_for_long() -> None:
    contiguous = torch.ones(9, 2, dtype=torch.bool)
    contiguous[3, 1] = False

    seen = observed_rows(torch.zeros(10, 2), contiguous, 0.5)

    assert seen[:, 0].nonzero().flatten().tolist() == list(range(0, 10, LONGEST_GAP + 1))
    assert seen[4, 1] and not seen[5, 1]


def test_rows_are_hidden_with_the_probability_that_is_asked_for() -> None:
    uniform = torch.rand(200, 200, generator=torch.Generator().manual_seed(2))
    contiguous = torch.ones(199, 200, dtype=torch.bool)

    shares = [1 - float(observed_rows(uniform, contiguous, p).float().mean()) for p in (0.0, 0.1)]

    assert shares[0] == 0 and 0.09 < shares[1] < 0.105


def test_nothing_that_is_given_is_changed() -> None:
    """Draws are new tensors: neither the posterior nor the noise, nor what the dynamics returned, is written to."""
    given, returned = example(), []
    before = {name: value.clone() for name, value in given.items() if isinstance(value, Tensor)}

    def remembered(state: Tensor, control: Tensor) -> Tensor:
        returned.append((means := curved(state, control), means.clone()))
        return means

    fill_masked_states(
        given["states"], given["contiguous"].new_zeros(STEPS + 1, ROWS), given["control"], remembered, given["noise"][0]
    )
    transition_terms(**given | {"transition": remembered})

    assert all(torch.equal(given[name], value) for name, value in before.items())
    assert len(returned) == LONGEST_GAP + 3 and all(torch.equal(means, copy) for means, copy in returned)


def test_a_detached_posterior_learns_from_one_step_only() -> None:
    """The last row is compared only, never rolled on: of K steps it gets w_1 of the gradient that one step gives."""
    gradients = []
    for k in (1, 3):
        given = example(k)
        mean, variance = given["posterior"]
        mean.requires_grad_()
        later = StatePosterior(mean.detach(), variance)
        gradients.append(torch.autograd.grad(transition_terms(**given, later=later), mean)[0][-1])

    torch.testing.assert_close(gradients[1], gradients[0] * float(step_weights(3, 0.8)[0]), rtol=1e-6, atol=1e-6)


def test_priors_that_look_back_further_than_the_pieces_are_long_are_refused() -> None:
    given = example(3) | {"contiguous": torch.ones(2, ROWS, dtype=torch.bool)}

    with pytest.raises(ValueError, match="of 3 steps do not fit into 2 steps"):
        transition_terms(**given)
