from functools import partial
from typing import Any

import pytest
import torch

from datamodules.core.errors import ConfigurationError
from modules.functional.options import choice_noise
from modules.networks import MLP
from modules.sac_options.controller import OptionController
from modules.sac_options.option_record import OptionRecord
from tests.modules.sac_options.test_scripted import Push, Scaled

ROWS = 32


def controller(options: int = 4, **changes: Any) -> OptionController:
    return OptionController((3,), options, network=partial(MLP, hidden=(16,)), **changes)


def executed(options: int = 4) -> OptionRecord:
    option, previous = torch.randint(options, (2, ROWS)).unbind()
    return OptionRecord(option, previous, torch.rand(ROWS) < 0.5, torch.randint(1, 5, (ROWS,)))


def test_options_not_offered_never_begin_but_may_go_on():
    control, obs = controller(), torch.randn(ROWS, 3)
    offers = torch.tensor([True, True, False, False]).expand(ROWS, 4)
    state = control.initial_state(ROWS) | {"option": torch.full((ROWS,), 3), "option_mask": offers}

    for _ in range(20):
        noise = choice_noise((ROWS,), 4, torch.Generator().manual_seed(int(torch.randint(99, ()))))
        choice = control.choose(obs, state, torch.zeros(ROWS, dtype=torch.bool), noise)
        assert (choice.option[choice.started] < 2).all() and (choice.option[~choice.started] == 3).all()


def test_a_mask_of_another_width_is_refused():
    state = controller(2).initial_state(ROWS)

    with pytest.raises(ConfigurationError, match="option_mask has 2 entries and the model 4 options"):
        controller().choose(torch.randn(ROWS, 3), state, torch.ones(ROWS, dtype=torch.bool), None)


def test_equal_values_are_worth_the_same_upon_arrival():
    value = torch.randn(ROWS, 1).expand(ROWS, 4)
    control = controller()
    control.log_alpha.data.fill_(-torch.inf)

    arrival = control.next_state_values(torch.randn(ROWS, 3), None, value, executed())

    assert torch.allclose(arrival.upon_arrival, value, atol=1e-6)


def test_one_option_has_nothing_to_learn_about_choosing():
    control, value, obs = controller(1, switch_cost=1.0), torch.randn(ROWS, 1), torch.randn(ROWS, 3)

    loss, surplus, _ = control.master_loss(obs, None, value)
    gradients = torch.autograd.grad(loss, list(control.master.parameters()), allow_unused=True)

    assert all(gradient is None or not gradient.any() for gradient in gradients)
    assert torch.autograd.grad(control.alpha_loss(surplus), control.log_alpha)[0] == 0
    assert torch.equal(control.next_state_values(obs, None, value, executed(1)).upon_arrival, value)


def test_the_price_of_switching_is_paid_in_the_target():
    value, obs, done = torch.randn(ROWS, 4), torch.randn(ROWS, 3), executed()
    free, dear = controller(), controller(switch_cost=0.5)
    dear.load_state_dict(free.state_dict())

    difference = (
        free.next_state_values(obs, None, value, done).upon_arrival
        - dear.next_state_values(obs, None, value, done).upon_arrival
    )

    assert torch.allclose(difference, torch.sigmoid(torch.tensor(-2.0)) * 0.5 * 0.75 * torch.ones(ROWS, 4), atol=0.02)


@pytest.mark.parametrize(("favour", "acts"), [(0.0, False), (9.0, True)])
def test_usage_is_evened_out_only_while_an_option_starves(favour: float, acts: bool):
    control, value, obs = controller(usage_weight=5.0), torch.randn(ROWS, 1).expand(ROWS, 4), torch.randn(ROWS, 3)
    control.log_alpha.data.fill_(-torch.inf)
    control.master.head.linear.bias.data[0] = favour
    for _ in range(40):
        loss, *_ = control.master_loss(obs, None, value)

    gradient = torch.autograd.grad(loss, control.master.head.linear.bias)[0]

    assert (gradient[0] > 1e-5) == acts and (gradient.abs().max() > 1e-5) == acts


def test_durations_decide_instead_of_the_option_and_teach_it_nothing():
    control, value = controller(min_duration=3), torch.randn(ROWS, 4)
    young = executed()._replace(option=torch.zeros(ROWS, dtype=torch.int64), started=torch.ones(ROWS, dtype=torch.bool))

    arrival = control.next_state_values(torch.randn(ROWS, 3), None, value, young)

    assert torch.equal(arrival.upon_arrival[:, 0], value[:, 0])
    assert (arrival.can_terminate[:, 0] == 0).all()


def test_scripts_say_where_options_begin_how_they_end_and_for_how_long_they_last():
    control = controller(2, scripted_options=[Scaled(), Push()])
    obs, begin = torch.tensor([[1.0, 0, 0], [-1.0, 0, 0]]), torch.ones(2, dtype=torch.bool)
    never = control.initial_state(2) | {"option_mask": torch.tensor([[False, True], [True, True]])}

    choice = control.choose(obs, never, begin, choice_noise((2,), 2, torch.Generator()))

    assert control.num_options == 2 and choice.option.tolist() == [1, 0]
    assert torch.allclose(control.termination(obs, torch.tensor([[0, 5], [3, 0]])), torch.tensor([[0, 0.5], [0.3, 0]]))


def test_what_runs_has_probabilities_that_match_the_draws():
    control, rows = controller(), 20_000
    obs = torch.randn(1, 3).expand(rows, 3)
    control.master.head.linear.bias.data.copy_(torch.tensor([1.0, 0.0, 0.0, -1.0]))
    state = control.initial_state(rows) | {"option_age": torch.ones(rows, dtype=torch.int64)}
    episode_start = torch.zeros(rows, dtype=torch.bool)
    choice = control.choose(obs, state, episode_start, choice_noise((rows,), 4, torch.Generator().manual_seed(1)))

    done = OptionRecord(choice.option, state["option"], choice.started, state["option_age"])

    shares = torch.bincount(choice.option, minlength=4) / rows
    assert torch.allclose(control.option_probability(obs, None, done)[0], shares, atol=0.01)


def test_options_that_did_not_act_count_as_if_they_had_just_begun():
    done = OptionRecord(*torch.tensor([[1], [0], [0], [4]]))._replace(started=torch.tensor([False]))
    control, value = controller(3, scripted_options=[Scaled(), Scaled(), Scaled()]), torch.tensor([[1.0, 2.0, 3.0]])
    control.log_alpha.data.fill_(-torch.inf)
    control.master.head.linear.bias.data.copy_(torch.tensor([0.0, 0.0, 1e3]))

    arrival = control.next_state_values(torch.randn(1, 3), None, value, done)

    assert control.ages(done).tolist() == [[1, 5, 1]]
    assert torch.allclose(arrival.upon_arrival, torch.tensor([[1 + 0.1 * 2, 2 + 0.5 * 1, 3.0]]), atol=1e-5)


def test_terminations_learn_nothing_where_the_episode_is_over():
    control, obs, done = controller(), torch.randn(ROWS, 3), executed()
    over, weight = torch.arange(ROWS) % 2 == 0, torch.full((ROWS, 4), 0.25)
    arrival = control.next_state_values(obs, None, torch.randn(ROWS, 4), done)

    def gradient(terminated: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        loss, *_ = control.termination_loss(obs, done, arrival, terminated, counts)
        return torch.autograd.grad(loss, control.termination_net.head.linear.weight)[0]

    control.termination_loss(obs, done, arrival, over, weight)  # the first advantages set their deviation
    alone = gradient(torch.zeros(ROWS, dtype=torch.bool), weight * ~over.unsqueeze(1))
    assert torch.allclose(gradient(over, weight), alone) and alone.any()
    assert not gradient(torch.ones(ROWS, dtype=torch.bool), weight).any()


def test_durations_are_those_of_the_configuration_whatever_a_checkpoint_was_made_with():
    control = controller(min_duration=3, max_duration=9)

    control.load_state_dict(controller().state_dict())

    assert control.min_duration.tolist() == [3] * 4 and control.max_duration.tolist() == [9] * 4


def test_the_target_entropy_goes_from_its_start_to_its_end():
    control, shares = controller(entropy=0.5, entropy_end=0.1), []
    for progress in (0.0, 0.25, 1.0):
        control.anneal_(progress)
        shares.append(float(control.entropy_share))

    assert shares == pytest.approx([0.5, 0.4, 0.1])


@pytest.mark.parametrize("surplus", [2.0, -2.0])
def test_the_masters_temperature_moves_in_proportion_to_itself_and_to_what_entropy_there_is_too_much(surplus: float):
    control = controller(init_temperature=0.3)

    (gradient,) = torch.autograd.grad(control.alpha_loss(torch.tensor(surplus)), control.log_alpha)

    assert gradient.item() == pytest.approx(0.3 * surplus)


@pytest.mark.parametrize(("longest", "started"), [(1, True), (2, False), (0, False)])
def test_an_option_of_one_step_at_most_ends_after_it(longest: int, started: bool):
    control = controller(max_duration=longest)
    control.termination_net.head.linear.bias.data.fill_(-1e3)
    state = control.initial_state(ROWS) | {"option_age": torch.ones(ROWS, dtype=torch.int64)}

    choice = control.choose(torch.randn(ROWS, 3), state, torch.zeros(ROWS, dtype=torch.bool), None)

    assert choice.started.tolist() == [started] * ROWS


def test_advantages_of_terminations_are_those_over_the_master_in_their_own_deviations():
    control, obs, done = controller(), torch.randn(ROWS, 3), executed()
    control.master.head.linear.bias.data.copy_(torch.tensor([1.0, 0.0, 0.0, -1.0]))
    value, never = torch.randn(ROWS, 4), torch.zeros(ROWS, dtype=torch.bool)
    arrival = control.next_state_values(obs, None, value, done)

    _, beta, scaled = control.termination_loss(obs, done, arrival, never, torch.ones(ROWS, 4))

    advantage = value - (arrival.log_master.exp() * value).sum(1, keepdim=True)
    assert torch.allclose(scaled, advantage / advantage.std(unbiased=False), atol=1e-4)
    assert torch.allclose(beta, torch.sigmoid(control.termination_net(obs)))
