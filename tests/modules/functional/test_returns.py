"""Returns and advantages against their definitions, in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from modules.functional.returns import (
    double_q_target,
    gae,
    n_step_return,
    td_target,
    truncated_n_step_return,
    vtrace,
    vtrace_correction,
)

FACTORS = st.floats(0.0, 1.0)
SEEDS = st.integers(0, 10_000)


def column(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=torch.float64)[:, None]


def flags(length: int, *raised: int) -> Tensor:
    flag = torch.zeros(length, 1, dtype=torch.bool)
    flag[list(raised)] = True
    return flag


def rollout(seed: int, steps: int = 9, rows: int = 3) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(seed)
    normal = [torch.randn(steps, rows, generator=random, dtype=torch.float64) for _ in range(3)]
    ends = [torch.rand(steps, rows, generator=random) < 0.2 for _ in range(2)]
    return dict(zip(("reward", "value", "next_value", "terminated", "truncated"), normal + ends, strict=True))


def slow_gae(data: dict[str, Tensor], gamma: float, lam: float) -> Tensor:
    """Sum of discounted errors from every start until its episode ends, number by number."""
    reward, value, next_value, terminated, truncated = (entries.tolist() for entries in data.values())
    advantage = torch.zeros_like(data["reward"])
    for start in range(len(reward)):
        for row in range(len(reward[0])):
            for t in range(start, len(reward)):
                after = 0.0 if terminated[t][row] else next_value[t][row]
                error = reward[t][row] + gamma * after - value[t][row]
                advantage[start, row] += (gamma * lam) ** (t - start) * error
                if terminated[t][row] or truncated[t][row]:
                    break
    return advantage


def decisive_case() -> dict[str, Tensor]:
    return {
        "reward": column(1, 2, 3, 4, 5),
        "value": column(0.5, 1, 1.5, 2, 2.5),
        "next_value": column(1, 1.5, 2, 10, 3),
        "terminated": flags(5, 1),
        "truncated": flags(5, 3),
    }


def test_gae_bootstraps_a_truncated_step_and_leaks_across_no_end() -> None:
    advantage, target = gae(**decisive_case(), gamma=0.9, lam=0.8)

    torch.testing.assert_close(advantage, column(2.12, 1, 11.22, 11, 5.2), rtol=1e-12, atol=0)
    torch.testing.assert_close(target, column(2.62, 2, 12.72, 13, 7.7), rtol=1e-12, atol=0)


def test_gae_does_not_bootstrap_where_terminated_and_truncated_are_both_set() -> None:
    case = decisive_case() | {"terminated": flags(5, 1, 3), "truncated": flags(5, 3)}

    advantage = gae(**case, gamma=0.9, lam=0.8).advantage

    torch.testing.assert_close(advantage, column(2.12, 1, 4.74, 2, 5.2), rtol=1e-12, atol=0)


def test_gae_ignores_what_stands_after_a_terminated_step() -> None:
    case = decisive_case()
    case["next_value"][1] = math.nan

    assert gae(**case, gamma=0.9, lam=0.8).advantage.isfinite().all()


@given(SEEDS, FACTORS, FACTORS)
@settings(max_examples=30, deadline=None)
def test_gae_equals_its_definition(seed: int, gamma: float, lam: float) -> None:
    data = rollout(seed)

    advantage, target = gae(**data, gamma=gamma, lam=lam)

    expected = slow_gae(data, gamma, lam)
    torch.testing.assert_close(advantage, expected, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(target, expected + data["value"], rtol=1e-12, atol=1e-13)


@given(SEEDS, FACTORS)
@settings(max_examples=20, deadline=None)
def test_gae_with_lam_0_is_the_one_step_error(seed: int, gamma: float) -> None:
    data = rollout(seed)

    target = gae(**data, gamma=gamma, lam=0.0).target

    after = torch.where(data["terminated"], 0.0, data["next_value"])
    torch.testing.assert_close(target, data["reward"] + gamma * after, rtol=1e-12, atol=1e-13)


@given(SEEDS, FACTORS)
@settings(max_examples=20, deadline=None)
def test_gae_with_lam_1_is_the_discounted_return_whatever_the_values(seed: int, gamma: float) -> None:
    data = rollout(seed, steps=6)
    data["terminated"][-1] = True
    data["truncated"].zero_()
    data["next_value"][:-1] = data["value"][1:]

    target = gae(**data, gamma=gamma, lam=1.0).target

    expected = torch.zeros_like(target)
    for t in reversed(range(6)):
        later = expected[t + 1] if t < 5 else 0.0
        expected[t] = data["reward"][t] + gamma * later * (~data["terminated"][t]).double()
    torch.testing.assert_close(target, expected, rtol=1e-12, atol=1e-13)


@given(SEEDS, st.integers(0, 7))
@settings(max_examples=20, deadline=None)
def test_gae_before_an_end_does_not_depend_on_what_comes_after(seed: int, end: int) -> None:
    data = rollout(seed)
    data["truncated"][end] = True
    before = gae(**data, gamma=0.99, lam=0.95).advantage[: end + 1]

    for name in ("reward", "value", "next_value"):
        data[name][end + 1 :] += 100.0

    assert torch.equal(gae(**data, gamma=0.99, lam=0.95).advantage[: end + 1], before)


def test_gae_carries_no_gradient_and_changes_no_argument() -> None:
    data = decisive_case()
    data["value"].requires_grad_()
    copies = {name: entries.detach().clone() for name, entries in data.items()}

    result = gae(**data, gamma=0.9, lam=0.8)

    assert not result.advantage.requires_grad and not result.target.requires_grad
    assert all(torch.equal(data[name], copies[name]) for name in data)


def test_gae_compiles_into_one_graph_with_the_same_result() -> None:
    data = {name: entries.float() if entries.is_floating_point() else entries for name, entries in rollout(0).items()}
    compiled = torch.compile(gae, fullgraph=True, backend="aot_eager")

    torch.testing.assert_close(compiled(**data, gamma=0.9, lam=0.8), gae(**data, gamma=0.9, lam=0.8))


@pytest.mark.parametrize("factors", [{"gamma": 1.5, "lam": 0.5}, {"gamma": 0.5, "lam": -0.1}])
def test_gae_refuses_a_factor_outside_the_unit_interval(factors: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"gae: (gamma is 1.5|lam is -0.1); it must lie in \[0, 1\]"):
        gae(**decisive_case(), **factors)


@given(SEEDS, FACTORS, FACTORS)
@settings(max_examples=20, deadline=None)
def test_vtrace_on_policy_is_gae(seed: int, gamma: float, lam: float) -> None:
    data = rollout(seed)

    off_policy = vtrace(torch.zeros_like(data["reward"]), **data, gamma=gamma, lam=lam)

    torch.testing.assert_close(off_policy, gae(**data, gamma=gamma, lam=lam), rtol=1e-12, atol=1e-13)


def slow_vtrace(ratio: Tensor, data: dict[str, Tensor], gamma: float, rho_max: float, c_max: float) -> Tensor:
    """The paper's sum over products of traces, from every start until its episode ends."""
    target = data["value"].clone()
    for start in range(ratio.shape[0]):
        for row in range(ratio.shape[1]):
            trace = 1.0
            for t in range(start, ratio.shape[0]):
                after = 0.0 if data["terminated"][t, row] else float(data["next_value"][t, row])
                error = float(data["reward"][t, row]) + gamma * after - float(data["value"][t, row])
                target[start, row] += gamma ** (t - start) * trace * min(rho_max, float(ratio[t, row])) * error
                trace *= min(c_max, float(ratio[t, row]))
                if data["terminated"][t, row] or data["truncated"][t, row]:
                    break
    return target


@pytest.mark.parametrize(("rho_max", "c_max"), [(1.0, 1.0), (2.0, 0.7), (math.inf, 1.0)])
def test_vtrace_equals_its_definition(rho_max: float, c_max: float) -> None:
    data = rollout(3)
    data["next_value"][:-1] = torch.where(data["truncated"][:-1], data["next_value"][:-1], data["value"][1:])
    log_ratio = torch.randn(9, 3, dtype=torch.float64)

    advantage, target = vtrace(log_ratio, **data, gamma=0.9, rho_max=rho_max, c_max=c_max)

    expected = slow_vtrace(log_ratio.exp(), data, 0.9, rho_max, c_max)
    torch.testing.assert_close(target, expected, rtol=1e-12, atol=1e-13)
    later = data["next_value"].clone()
    later[:-1] = torch.where(data["truncated"][:-1], later[:-1], expected[1:])
    later[data["terminated"]] = 0.0
    surprise = log_ratio.exp().clamp(max=rho_max) * (data["reward"] + 0.9 * later - data["value"])
    torch.testing.assert_close(advantage, surprise, rtol=1e-12, atol=1e-13)


def test_vtrace_refuses_a_bound_that_is_not_positive() -> None:
    case = decisive_case()

    with pytest.raises(ValueError, match="both must be positive"):
        vtrace(torch.zeros(5, 1), **case, gamma=0.9, rho_max=0.0)


@pytest.mark.parametrize(
    ("terminated", "truncated", "return_", "discount", "last"),
    [((), (), 2.71, 0.729, 2), ((1,), (), 1.9, 0.0, 1), ((), (1,), 1.9, 0.81, 1), ((1,), (1,), 1.9, 0.0, 1)],
    ids=["no end", "terminated", "truncated", "both"],
)
def test_three_step_return_is_cut_at_an_end_and_bootstraps_the_right_step(
    terminated: tuple[int, ...], truncated: tuple[int, ...], return_: float, discount: float, last: int
) -> None:
    result = n_step_return(column(1, 1, 1), flags(3, *terminated), flags(3, *truncated), gamma=0.9, steps=3)

    torch.testing.assert_close(result.return_, column(return_), rtol=1e-12, atol=0)
    torch.testing.assert_close(result.discount, column(discount), rtol=1e-12, atol=0)
    assert result.last.tolist() == [[last]]


@given(SEEDS, FACTORS)
@settings(max_examples=20, deadline=None)
def test_n_step_target_is_the_monte_carlo_target_where_the_series_is_one_window(seed: int, gamma: float) -> None:
    data = rollout(seed)
    data["next_value"][:-1] = torch.where(data["truncated"][:-1], data["next_value"][:-1], data["value"][1:])

    result = n_step_return(data["reward"], data["terminated"], data["truncated"], gamma=gamma, steps=9)

    target = td_target(result.return_, data["next_value"].gather(0, result.last), result.discount)
    expected = gae(**data, gamma=gamma, lam=1.0).target[:1]
    torch.testing.assert_close(target, expected, rtol=1e-12, atol=1e-12)


def test_one_step_return_of_a_series_is_its_rewards() -> None:
    data = rollout(0)

    result = n_step_return(data["reward"], data["terminated"], data["truncated"], gamma=0.9, steps=1)

    assert torch.equal(result.return_, data["reward"])
    assert torch.equal(result.discount, 0.9 * (~data["terminated"]).double())
    assert torch.equal(result.last, torch.arange(9)[:, None].expand(9, 3))


def test_n_step_return_refuses_more_steps_than_the_series_has() -> None:
    with pytest.raises(ValueError, match="steps is 4; the series has 3 steps"):
        n_step_return(column(1, 1, 1), flags(3), flags(3), gamma=0.9, steps=4)


@pytest.mark.parametrize(("discount", "expected"), [(0.9, 3.7), (0.0, 1.0)], ids=["running", "terminated"])
def test_double_q_target_lets_one_network_choose_and_the_other_judge(discount: float, expected: float) -> None:
    online, target = torch.tensor([[1.0, 5.0, 2.0]]), torch.tensor([[10.0, 3.0, 7.0]])

    result = double_q_target(torch.ones(1), online, target, torch.tensor([discount]))

    torch.testing.assert_close(result, torch.tensor([expected]))


@given(SEEDS, FACTORS, st.integers(1, 4))
@settings(deadline=None, max_examples=30)
def test_a_window_has_the_return_and_discount_that_its_start_has_in_the_whole(seed: int, gamma: float, n: int) -> None:
    data = rollout(seed)
    whole = n_step_return(data["reward"], data["terminated"], data["truncated"], gamma=gamma, steps=n)
    start = torch.arange(len(whole.return_))[:, None]
    length = whole.last - start + 1
    steps = torch.arange(n)
    reward = data["reward"].unfold(0, n, 1) * (steps < length.unsqueeze(-1))
    terminated = data["terminated"].gather(0, whole.last)
    return_, discount = truncated_n_step_return(reward, length, terminated, gamma=gamma)
    torch.testing.assert_close(return_, whole.return_, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(discount, whole.discount, rtol=1e-12, atol=1e-14)


@given(SEEDS, FACTORS, FACTORS, st.integers(1, 9))
@settings(max_examples=30, deadline=None)
def test_vtrace_correction_at_ratio_one_is_gae_also_in_two_segments(
    seed: int, gamma: float, lam: float, cut: int
) -> None:
    data = rollout(seed, steps=10)
    advantage, target = gae(**data, gamma=gamma, lam=lam)
    for part, later in ((slice(0, cut), advantage[cut : cut + 1]), (slice(cut, None), torch.zeros(1, 3).double())):
        piece = {name: entries[part] for name, entries in data.items()}
        log_ratio = torch.zeros_like(piece["reward"])

        found = vtrace_correction(log_ratio, **piece, next_advantage=later, gamma=gamma, lam=lam)

        assert torch.equal(found.advantage, advantage[part]) and torch.equal(found.target, target[part])


@given(SEEDS, st.sampled_from([0.5, 1.0, math.inf]), st.sampled_from([0.5, 1.0]))
@settings(max_examples=20, deadline=None)
def test_vtrace_correction_equals_its_recursion_and_the_target_of_vtrace(seed: int, rho: float, c: float) -> None:
    data = rollout(seed)
    log_ratio = torch.randn(9, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    bounds = {"gamma": 0.9, "lam": 0.8, "rho_max": rho, "c_max": c}

    advantage, target = vtrace_correction(log_ratio, **data, next_advantage=torch.zeros(1, 3).double(), **bounds)

    expected, following = torch.zeros_like(advantage), torch.zeros(3, dtype=torch.float64)
    for t in reversed(range(9)):
        after = torch.where(data["terminated"][t], 0.0, data["next_value"][t])
        error = data["reward"][t] + 0.9 * after - data["value"][t]
        goes_on = (~(data["terminated"][t] | data["truncated"][t])).double()
        ratio = log_ratio[t].exp()
        following = ratio.clamp(max=rho) * error + 0.9 * 0.8 * ratio.clamp(max=c) * goes_on * following
        expected[t] = following
    torch.testing.assert_close(advantage, expected, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(target, vtrace(log_ratio, **data, **bounds).target, rtol=1e-12, atol=1e-13)


def test_vtrace_correction_does_not_reach_across_an_end() -> None:
    data, log_ratio = rollout(0), torch.zeros(9, 3, dtype=torch.float64)
    data["truncated"][4] = True
    before = vtrace_correction(
        log_ratio, **data, next_advantage=torch.zeros(1, 3).double(), gamma=0.99, lam=0.95
    ).advantage

    data["reward"][5:] += 100.0
    after = vtrace_correction(
        log_ratio, **data, next_advantage=torch.ones(1, 3).double(), gamma=0.99, lam=0.95
    ).advantage

    assert torch.equal(after[:5], before[:5]) and not torch.equal(after[5:], before[5:])
