import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modules.functional.options import (
    arrival_probability,
    bounded_termination,
    categorical_divergence,
    controller_value,
    gaussian_divergence,
    log_master,
    master_entropy,
    master_loss,
    offered_options,
    option_advantage,
    option_target,
    option_value_upon_arrival,
    termination_loss,
    uniform_usage,
    usage_divergence,
)

double = torch.float64


def test_targets_of_both_options_when_the_better_one_is_chosen_anew():
    value, never = torch.tensor([[1.0, 2.0]], dtype=double), torch.tensor([False])
    better = log_master(torch.tensor([[0.0, 1e3]], dtype=double))

    arrival = option_value_upon_arrival(value, controller_value(value, better, 0.2), torch.full_like(value, 0.25))
    target = option_target(torch.ones(1, dtype=double), arrival, never, discount=0.9)

    assert torch.allclose(target, torch.tensor([[2.125, 2.80]], dtype=double))
    assert option_target(torch.ones(1, dtype=double), arrival, ~never, discount=0.9).tolist() == [[1.0, 1.0]]


def test_the_termination_gradient_has_the_cost_inside_and_the_advantage_detached():
    logit = torch.zeros(1, 1, dtype=double, requires_grad=True)
    advantage = torch.tensor([[1.0 - 1.95]], dtype=double, requires_grad=True)

    loss = termination_loss(logit.sigmoid(), advantage, 0.01, torch.ones(1, 1, dtype=double), torch.tensor([True]))
    (gradient,) = torch.autograd.grad(loss, logit, retain_graph=True)

    assert gradient.item() == pytest.approx(-0.235)
    assert torch.autograd.grad(loss, advantage, allow_unused=True) == (None,)


def test_terminations_rest_where_the_advantage_balances_the_prior():
    logit = torch.full((1, 1), math.log(0.2 / 0.8) - (1.5 + 0.1) / 0.5, dtype=double, requires_grad=True)
    one, advantage = torch.ones(1, 1, dtype=double), torch.full((1, 1), 1.5, dtype=double)

    loss = termination_loss(logit.sigmoid(), advantage, 0.1, one, torch.tensor([True]), prior=0.2, prior_weight=0.5)

    assert torch.autograd.grad(loss, logit)[0].item() == pytest.approx(0.0, abs=1e-12)


@given(st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=20), st.floats(0, 1, width=32))
def test_with_one_option_arriving_is_worth_going_on_to_the_last_bit(values: list[float], beta: float):
    value = torch.tensor(values).unsqueeze(-1)
    only = log_master(torch.randn_like(value))

    arrival = option_value_upon_arrival(value, controller_value(value, only, 0.3), torch.full_like(value, beta))

    assert torch.equal(arrival, value)


def test_equal_values_make_arriving_worth_the_same_whatever_ends_and_whoever_chooses():
    value = torch.randn(7, 1, dtype=double).expand(7, 4)
    master, beta = log_master(torch.randn(7, 4, dtype=double)), torch.rand(7, 4, dtype=double)

    arrival = option_value_upon_arrival(value, controller_value(value, master, 0.0), beta)

    assert torch.allclose(arrival, value, rtol=1e-12)


def test_options_not_offered_are_never_chosen_and_a_state_without_any_offers_all():
    mask = torch.tensor([[True, False, True], [False, False, False]])

    master = log_master(torch.tensor([[1.0, 9.0, 1.0], [0.0, 0.0, 0.0]]), mask)

    assert master.exp().tolist()[0] == [0.5, 0.0, 0.5]
    assert torch.allclose(master.exp()[1], torch.full((3,), 1 / 3))
    assert offered_options(mask).tolist() == [[True, False, True], [True, True, True]]
    assert torch.isfinite(controller_value(torch.ones(2, 3), master, 0.5)).all()
    assert torch.allclose(uniform_usage(mask, master), torch.tensor([5 / 12, 1 / 6, 5 / 12]))


def test_the_option_that_ran_cannot_end_too_young_and_must_end_too_old():
    beta, option, age = torch.full((3, 2), 0.3), torch.tensor([0, 0, 1]), torch.tensor([1, 3, 5])

    bounded = bounded_termination(beta, option, age, torch.tensor([2, 2]), torch.tensor([0, 5]))

    assert torch.equal(bounded, torch.tensor([[0.0, 0.3], [0.3, 0.3], [0.3, 1.0]]))


def test_what_runs_next_goes_on_or_is_chosen_anew():
    master = log_master(torch.tensor([[0.2, 0.8], [0.2, 0.8]]).log())
    first = torch.tensor([False, True])

    probability = arrival_probability(master, torch.full((2, 2), 0.25), torch.tensor([0, 0]), first)

    assert torch.allclose(probability, torch.tensor([[0.75 + 0.05, 0.2], [0.2, 0.8]]))


def test_the_master_rests_at_its_soft_optimum_and_moves_toward_it_elsewhere():
    value = torch.tensor([[1.0, 2.0, 0.0]], dtype=double)
    best = (value / 0.5).clone().requires_grad_()
    even = torch.zeros(1, 3, dtype=double, requires_grad=True)

    (at_best,) = torch.autograd.grad(master_loss(log_master(best), value, 0.5), best)
    (at_even,) = torch.autograd.grad(master_loss(log_master(even), value, 0.5), even)

    assert torch.allclose(at_best, torch.zeros(1, 3, dtype=double), atol=1e-12)
    assert at_even[0, 1] < 0 < at_even[0, 2]


def test_usage_is_even_over_states_even_if_every_state_decides_sharply():
    sharp = log_master(torch.tensor([[1e4, 0.0], [0.0, 1e4]], dtype=double))
    usage = sharp.exp().mean(0)

    assert usage_divergence(usage, uniform_usage(None, sharp)).item() == pytest.approx(0.0)
    assert master_entropy(sharp).tolist() == [0.0, 0.0]
    assert usage_divergence(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])).item() == pytest.approx(math.log(2))


def test_the_advantage_holds_no_entropy():
    even = log_master(torch.zeros(1, 2, dtype=double))

    assert option_advantage(torch.tensor([[3.0, 3.0]], dtype=double), even).tolist() == [[0.0, 0.0]]


def test_divergences_match_torch_distributions():
    mean, log_std = torch.randn(5, 3, 2, dtype=double), torch.randn(5, 3, 2, dtype=double)
    logits = torch.randn(5, 3, 4, dtype=double).log_softmax(-1)
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]

    normal = [torch.distributions.Normal(mean[:, i], log_std[:, i].exp()) for i in range(3)]
    choice = [torch.distributions.Categorical(logits=logits[:, i]) for i in range(3)]
    kl = torch.distributions.kl_divergence

    assert torch.allclose(
        gaussian_divergence(mean, log_std), torch.stack([kl(normal[i], normal[j]).sum(-1) for i, j in pairs]).mean()
    )
    assert torch.allclose(
        categorical_divergence(logits), torch.stack([kl(choice[i], choice[j]) for i, j in pairs]).mean()
    )


def test_iterating_the_targets_solves_a_two_state_process_by_hand():
    """State 0 pays 1 and leads to state 1, which pays 0 and leads back; option 0 never ends, option 1 always does."""
    gamma, alpha, beta = 0.5, 0.2, torch.tensor([[0.0, 1.0], [0.0, 1.0]], dtype=double)
    master, reward = log_master(torch.zeros(2, 2, dtype=double)), torch.tensor([1.0, 0.0], dtype=double)
    value = torch.zeros(2, 2, dtype=double)

    for _ in range(200):
        arrival = option_value_upon_arrival(value, controller_value(value, master, alpha), beta)
        value = option_target(reward, arrival[[1, 0]], torch.zeros(2, dtype=torch.bool), discount=gamma)

    # option 0: v = r + gamma v' for ever: 4/3 and 2/3; option 1 adds gamma (mean over options + alpha log 2)
    bonus = alpha * math.log(2)
    v0, v1 = 4 / 3, 2 / 3
    w1 = (0 + gamma * (v0 / 2 + (1 + gamma * (v1 / 2 + bonus)) / 2 + bonus)) / (1 - gamma**2 / 4)
    w0 = 1 + gamma * ((v1 + w1) / 2 + bonus)
    assert torch.allclose(value, torch.tensor([[v0, w0], [v1, w1]], dtype=double))


@pytest.mark.parametrize("shape", [(7, 4), (3, 7, 4)])
def test_even_usage_is_one_number_an_option_also_where_nothing_is_masked(shape: tuple[int, ...]):
    like = torch.randn(shape)

    assert (
        uniform_usage(None, like).tolist()
        == uniform_usage(torch.ones(shape, dtype=torch.bool), like).tolist()
        == [0.25] * 4
    )
