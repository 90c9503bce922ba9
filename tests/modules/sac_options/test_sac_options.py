"""One option is soft actor-critic; several are what the equations say."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput, SpaceSpec
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.sac.batch import SACBatch
from modules.sac.sac import SAC
from modules.sac_options.controller import OptionController
from modules.sac_options.option_record import OptionRecord
from modules.sac_options.sac_options import SACOptions
from tests.modules.sac_options.test_scripted import Push, Scaled
from tests.oracles.sac import box_data, small_sac
from tests.support.small_runs import trainer

ROWS, KINDS = 8, ("continuous", "discrete")
SMALL = {"network": partial(MLP, hidden=(8,)), "critic": partial(TwinMLP, hidden=(8,))}
CONTROL = partial(OptionController, network=partial(MLP, hidden=(8,)))


def spaces(kind: str) -> SpaceSpec:
    box = kind == "continuous"
    return SpaceSpec(
        obs_shape=(3,),
        obs_dtype="float32",
        action_type=kind,  # type: ignore[typeddict-item]
        action_sizes=[] if box else [5],
        action_low=[-2.0, -1.0] if box else [],
        action_high=[2.0, 3.0] if box else [],
        action_start=[] if box else [0],
        num_agents=1,
    )


def made(cls: type, kind: str, **changes: Any) -> Any:
    torch.manual_seed(3)
    model = cls(spaces(kind), **SMALL, **changes)
    model.configure_optimizers()
    return model


def options(kind: str, count: int, **changes: Any) -> SACOptions:
    return made(SACOptions, kind, num_options=count, **{"controller": CONTROL, **changes})


def minibatches(kind: str, updates: int, count: int = 1) -> SACBatch:
    shape, generator = (updates, ROWS), torch.Generator().manual_seed(5)
    draw = partial(torch.randint, generator=generator)
    action = torch.rand(*shape, 2, generator=generator) * 2 - 1 if kind == "continuous" else draw(5, shape)
    extras = {
        "option": draw(count, shape),
        "option_previous": draw(count, shape),
        "option_previous_age": draw(4, shape),
    }
    terminated = torch.rand(shape, generator=generator) < 0.1
    return SACBatch(
        obs=torch.randn(*shape, 3, generator=generator),
        action=action,
        return_=torch.randn(shape, generator=generator),
        terminated=terminated,
        discount=0.97 * ~terminated,
        next_obs=torch.randn(*shape, 3, generator=generator),
        extras={**extras, "option_started": torch.rand(shape, generator=generator) < 0.3},
        next_masks={},
        weight=torch.ones(shape),
    )


def noise(kind: str, updates: int, *each: int) -> Tensor | None:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(updates, 2, ROWS, *each, 2, generator=generator) if kind == "continuous" else None


@pytest.mark.parametrize("kind", KINDS)
def test_one_option_is_soft_actor_critic_to_the_last_bit_after_100_updates(kind: str):
    flat, one = made(SAC, kind), options(kind, 1)
    first = {name: weight.clone() for name, weight in flat.state_dict().items()}
    assert all(torch.equal(one.state_dict()[name], weight) for name, weight in first.items())

    flat.run_updates(minibatches(kind, 100), noise(kind, 100))
    one.run_updates(minibatches(kind, 100), noise(kind, 100, 1))

    learned = one.state_dict()
    assert all(torch.equal(learned[name], weight) for name, weight in flat.state_dict().items())
    assert not torch.equal(learned["log_alpha"], first["log_alpha"])


@pytest.mark.parametrize("kind", KINDS)
def test_one_option_acts_with_the_noise_of_soft_actor_critic(kind: str):
    flat, one = made(SAC, kind), options(kind, 1)
    one.option_generator = torch.Generator().manual_seed(1)
    obs, episode_start = torch.randn(ROWS, 3), torch.zeros(ROWS, dtype=torch.bool)
    draws = [model.noise((4, ROWS), torch.Generator().manual_seed(2)) for model in (flat, one)]

    plain = flat.act(PolicyInput(obs, {}, episode_start), noise=draws[0][1])[0].action
    decision, state = one.act(PolicyInput(obs, one.initial_state(ROWS), episode_start), noise=draws[1][1])

    assert torch.equal(decision.action, plain)
    assert set(decision.extras) == {"option", "option_previous", "option_started", "option_previous_age"}
    assert (state["option_age"] == 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_equal_heads_and_columns_make_arriving_worth_going_on(kind: str):
    model = options(kind, 4)
    for weight in (*model.head.linear.parameters(), *model.target_critic.layers[-1].parameters()):
        twins = weight.dim() == 3
        first = weight.data.unflatten(-1 if twins else 0, (4, -1)).select(2 if twins else 0, 0)
        weight.data.copy_(torch.cat([first] * 4, -1 if twins else 0))
    model.controller.log_alpha.data.fill_(-torch.inf)
    batch, draw = minibatches(kind, 1, 4).minibatch(0), noise(kind, 1, 1)
    draw = None if draw is None else draw[0, 0].expand(-1, 4, -1)

    arrival, _ = model.next_state_values(batch, OptionRecord.of(batch.extras), draw, torch.tensor(0.2))

    assert torch.allclose(arrival.upon_arrival, arrival.value, atol=1e-6)
    assert torch.allclose(arrival.value, arrival.value[:, :1].expand(-1, 4), atol=1e-6)


def test_what_is_not_offered_next_does_not_count_in_the_target():
    model = options("discrete", 3)
    batch = minibatches("discrete", 1, 3).minibatch(0)
    only = {"option_mask": torch.tensor([True, False, False]).expand(ROWS, 3)}
    alpha, executed = torch.tensor(0.2), OptionRecord.of(batch.extras)

    arrival, _ = model.next_state_values(batch._replace(next_masks=only), executed, None, alpha)

    value, beta = arrival.value, model.controller.termination(batch.next_obs, model.controller.ages(executed)).detach()
    assert torch.allclose(arrival.upon_arrival, value + beta * (value[:, :1] - value), atol=1e-6)
    assert torch.equal(arrival.log_master.exp(), torch.tensor([1.0, 0.0, 0.0]).expand(ROWS, 3))


@pytest.mark.parametrize(("mode", "others"), [("all", True), ("executed", False), ("multi", True)])
def test_the_update_mode_says_whether_options_learn_from_each_others_steps(mode: str, others: bool):
    model = options("continuous", 3, controller=partial(CONTROL, update_mode=mode))
    batch = minibatches("continuous", 5, 3)
    batch = batch._replace(extras=batch.extras | {"option": torch.zeros(5, ROWS, dtype=torch.int64)})
    before = model.critic.layers[-1].weight.detach().clone()

    model.run_updates(batch, noise("continuous", 5, 3))

    moved = (model.critic.layers[-1].weight.detach() - before).abs().sum((0, 1)) > 0
    assert moved.tolist() == [True, others, others]


def test_windows_of_several_steps_are_refused(tmp_path: Path):
    data = box_data(n_step=2)

    with pytest.raises(ConfigurationError, match=r"data\.n_step is 2; an option learns from single steps: set it to 1"):
        trainer(tmp_path).fit(small_sac(data, SACOptions), datamodule=data)


@pytest.mark.parametrize("over", [True, False])
def test_terminations_learn_from_steps_that_go_on_only(over: bool):
    model = options("continuous", 3)
    batch = minibatches("continuous", 3, 3)
    before = {name: weight.clone() for name, weight in model.controller.termination_net.state_dict().items()}

    model.run_updates(batch._replace(terminated=torch.full_like(batch.terminated, over)), noise("continuous", 3, 3))

    after = model.controller.termination_net.state_dict()
    assert all(torch.equal(weight, after[name]) for name, weight in before.items()) == over


def test_scripts_that_leave_the_actor_out_teach_it_nothing_and_earn_no_entropy():
    model = options("continuous", 4, scripted_options=[Push(), Push()])
    before = {name: weight.clone() for name, weight in model.state_dict().items()}

    model.run_updates(minibatches("continuous", 3, 2), noise("continuous", 3, 2))

    same = {name for name, weight in model.state_dict().items() if torch.equal(weight, before[name])}
    assert {"head.linear.weight", "log_alpha"} <= same and "controller.master.head.linear.weight" not in same
    assert model.num_options == 2 and model.controller.termination_net is None


def test_a_script_scales_what_the_actor_does():
    model, obs = options("continuous", 1, scripted_options=[Scaled()]), torch.randn(ROWS, 3)
    learned = options("continuous", 1)
    episode_start = torch.ones(ROWS, dtype=torch.bool)

    half = model.act(PolicyInput(obs, model.initial_state(ROWS), episode_start), greedy=True)[0].action

    whole = learned.act(PolicyInput(obs, learned.initial_state(ROWS), episode_start), greedy=True)[0].action
    assert torch.allclose(half, 0.5 * whole)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"scripted_options": [Push()], "normalize_obs": True}, "model.normalize_obs"),
        ({"scripted_options": []}, "scripted_options is empty"),
        ({"num_options": 0}, "The controller has num_options 0; choose at least 1"),
        ({"noise_hold": 2}, "noise_hold"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(changes: dict[str, Any], said: str):
    with pytest.raises(ConfigurationError, match=said):
        SACOptions(spaces("continuous"), **SMALL, **changes)
    with pytest.raises(ConfigurationError, match="cannot use the actor"):
        SACOptions(spaces("discrete"), **SMALL, scripted_options=[Scaled()])


@pytest.mark.parametrize("kind", KINDS)
def test_acting_compiles_to_one_graph_with_equal_results(kind: str):
    model, obs, episode_start = options(kind, 3), torch.randn(ROWS, 3), torch.rand(ROWS) < 0.5
    draw = model.noise((ROWS,), torch.Generator().manual_seed(0))

    def act(obs: Tensor, state: dict[str, Tensor], episode_start: Tensor, noise: Tensor) -> Any:
        return model.act(PolicyInput(obs, state, episode_start), noise=noise)

    eager = act(obs, model.initial_state(ROWS), episode_start, draw)
    compiled = torch.compile(act, backend="eager", fullgraph=True)(obs, model.initial_state(ROWS), episode_start, draw)

    assert torch.equal(eager[0].action, compiled[0].action) and torch.equal(eager[1]["option"], compiled[1]["option"])


def usage_at_the_start(rows: int, **changes: Any) -> tuple[Tensor, Tensor]:
    """Return options and actions before the first update, of a master and options that are nearly sure."""
    model = options("discrete", 3, **changes)
    with torch.no_grad():
        model.controller.master.head.linear.bias[0] = 9.0
        model.head.linear.bias.view(3, 5)[:, 4] = 9.0
    model.random_warmup.fill_(True)
    inputs = PolicyInput(torch.zeros(rows, 3), model.initial_state(rows), torch.ones(rows, dtype=torch.bool))
    output, state = model.act(inputs, noise=model.noise((rows,), torch.Generator().manual_seed(1)))
    return state["option"].bincount(minlength=3) / rows, output.action.bincount(minlength=5) / rows


def test_a_warmup_of_options_draws_options_uniformly_and_not_actions():
    option, action = usage_at_the_start(6000, warmup="options")
    usual, uniform = usage_at_the_start(6000)

    assert option.tolist() == pytest.approx([1 / 3] * 3, abs=0.03) and action[4] > 0.95
    assert usual[0] > 0.95 and uniform.tolist() == pytest.approx([0.2] * 5, abs=0.03)


def test_a_warmup_of_options_is_over_with_the_first_update():
    model = options("discrete", 3, warmup="options")
    inputs = PolicyInput(torch.zeros(9, 3), model.initial_state(9), torch.ones(9, dtype=torch.bool))
    with torch.no_grad():
        model.controller.master.head.linear.bias[0] = 99.0

    state = model.act(inputs, noise=model.noise((9,), torch.Generator().manual_seed(1)))[1]

    assert (state["option"] == 0).all()
