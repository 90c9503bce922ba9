import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from pytest import approx
from torch import Tensor

import datamodules.envs  # noqa: F401  (registers the id)
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import State
from datamodules.trading.account import account
from datamodules.trading.env import Trading
from datamodules.trading.performance import performance
from datamodules.trading.prices.features import NAMES, WARMUP
from datamodules.trading.prices.synthetic import synthetic_prices
from datamodules.trading.scripted_options import DEFAULT_OPTIONS, INDEX
from tests.support.price_fixtures import changed_after, with_gaps, write_prices

SMALL: dict[str, Any] = {"synthetic": {"bars": 900}, "embargo": 5}


def start(env: Trading, rows: int = 1) -> State:
    return env.initial(torch.rand(rows, 2))


def played(env: Trading, weights: Tensor) -> tuple[list[State], Tensor, Tensor]:
    """States, rewards `[T]` and whether an episode ended, of one row that is given its weights `[T]`."""
    states, rewards, ended = [start(env)], [], []
    for weight in weights:
        state, reward, terminated, truncated = env.transition(states[-1], weight.view(1, 1), torch.rand(1, 2))
        states, rewards, ended = [*states, state], [*rewards, reward], [*ended, terminated | truncated]
    return states, torch.cat(rewards), torch.cat(ended)


@pytest.mark.parametrize("execution", ["open", "close"])
@pytest.mark.parametrize("reward_scale", [1.0, 100.0])
def test_rewards_add_up_to_log_equity(execution: str, reward_scale: float) -> None:
    env = Trading("AR1", split="test", execution=execution, reward_scale=reward_scale, **SMALL)
    states, rewards, ended = played(env, torch.rand(env.length) * 2 - 1)

    equity = 1.0  # the account again, one bar after the other, from prices alone
    price = env.prices[0].open[1:] if execution == "open" else env.prices[0].close
    before = 0.0
    for bar, state in enumerate(states[1:], start=env.first):
        weight, gain = float(state["weight"]), price[bar + 1] / price[bar] - 1
        factor = 1 + weight * gain - 0.001 * abs(weight - before) - 0.02 / 252 * max(-weight, 0)
        equity, before = equity * factor, weight * (1 + gain) / (1 + weight * gain)
    assert abs(float(states[-1]["log_equity"]) - math.log(equity)) < 1e-9
    assert abs(float(rewards.double().sum()) / reward_scale - math.log(equity)) < 1e-9
    assert ended.nonzero().tolist() == [[env.length - 1]]


@pytest.mark.parametrize("window", [1, 5])
def test_the_first_observation_shows_bars_whose_features_are_all_known(window: int) -> None:
    env = Trading("AR1", split="train", window=window, **SMALL)

    assert env.first == WARMUP + window - 1


def test_later_bars_change_no_observation_before_them(tmp_path: Path) -> None:
    prices, weights = synthetic_prices("REGIMES", bars=900), torch.rand(60) * 2 - 1
    paths = [
        write_prices(tmp_path / name, each) for name, each in (("a.csv", prices), ("b.csv", changed_after(prices, 790)))
    ]

    first, second = (Trading("X", str(path), split="test", window=3, embargo=5) for path in paths)

    seen = [torch.cat([env.observation(state) for state in played(env, weights)[0]]) for env in (first, second)]
    known = 790 - first.first + 1
    assert torch.equal(seen[0][:known], seen[1][:known]) and not torch.equal(seen[0][known], seen[1][known])


@pytest.mark.parametrize("execution", ["open", "close"])
def test_at_the_close_nothing_of_the_next_bar_is_seen(tmp_path: Path, execution: str) -> None:
    """The bars have gaps, so that even an open one bar ahead would show; only the next bar's open differs."""
    prices, weights = with_gaps(synthetic_prices("REGIMES", bars=900)), torch.rand(60) * 2 - 1
    changed = {name: getattr(prices, name).copy() for name in ("open", "high", "low", "close")}
    for column in changed.values():
        column[791:] *= 1.1
    paths = [
        write_prices(tmp_path / f"{name}.csv", each)
        for name, each in (("a", prices), ("b", prices._replace(**changed)))
    ]

    first, second = (Trading("X", str(path), split="test", embargo=5, execution=execution) for path in paths)

    seen = [torch.cat([env.observation(state) for state in played(env, weights)[0]]) for env in (first, second)]
    known = 790 - first.first + 1
    assert torch.equal(seen[0][:known], seen[1][:known]) and not torch.equal(seen[0][known], seen[1][known])


def test_features_are_those_of_the_bar_that_closed(tmp_path: Path) -> None:
    prices = with_gaps(synthetic_prices("REGIMES", bars=900))
    env = Trading("X", str(write_prices(tmp_path / "X.csv", prices)), split="test", window=2, embargo=5)
    states, *_ = played(env, torch.zeros(3))
    place, bar = INDEX["intraday"], env.first + 2

    obs = env.observation(states[2])[0]

    for back in (0, 1):
        day = bar - back
        returns = torch.from_numpy(prices.close[day - 60 : day + 1]).log().diff()
        expected = math.log(prices.close[day] / prices.open[day]) / float(returns.std(correction=0))
        assert math.isclose(obs[place + back * len(NAMES)], expected, rel_tol=1e-4)


def test_leaving_a_position_costs_what_entering_it_does() -> None:
    env = Trading("WALK", split="test", cost_bps=50, borrow_rate=0, **SMALL)

    held, idle = played(env, torch.tensor([1.0, 0.0, 0.0]))[0][1:], played(env, torch.zeros(3))[0][1:]

    assert [float(state["fee"]) for state in held] == approx([0.005, 0.005, 0], abs=1e-12)
    last = float(held[-1]["log_equity"] - held[0]["log_equity"])
    assert last == approx(math.log(1 - 0.005), abs=1e-12) and float(idle[-1]["log_equity"]) == 0
    assert float(held[-1]["cost"]) == approx(0.01) and float(held[-1]["traded"]) == approx(2.0)


def test_an_oracle_grows_rich_and_random_play_loses_its_costs() -> None:
    env = Trading("WALK", split="test", synthetic={"bars": 4000}, cost_bps=20, borrow_rate=0)
    bars = slice(env.first, env.first + env.length)
    gain = env.tables[torch.device("cpu")].gain[0, bars]

    oracle = played(env, gain.sign().float())[0][-1]
    idle = torch.stack([played(env, torch.rand(env.length) * 2 - 1)[0][-1]["log_equity"] for _ in range(8)])

    assert float(oracle["log_equity"]) > 3
    cost = -math.log1p(-0.002 * 2 / 3) * env.length
    assert abs(float(idle.mean()) + cost) < 3 * 0.01 * (env.length / 3 / 8) ** 0.5


def test_the_whole_path_at_once_agrees_with_its_steps() -> None:
    env = Trading("AR1", split="val", **SMALL)
    weights = torch.rand(env.length, dtype=torch.float64) * 2 - 1
    gain = env.tables[torch.device("cpu")].gain[0, env.first : env.first + env.length]

    done, last = account(weights.float().double(), gain, env.costs), played(env, weights.float())[0][-1]

    torch.testing.assert_close(done.factor.log().sum().view(1), last["log_equity"], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(done.traded.sum().view(1), last["traded"], rtol=1e-12, atol=1e-12)


def test_an_episode_is_measured_as_the_report_measures_it() -> None:
    env = Trading("AR1", split="val", **SMALL)
    weights = torch.rand(env.length) * 2 - 1
    gain = env.tables[torch.device("cpu")].gain[0, env.first : env.first + env.length]

    done, info = account(weights.double(), gain, env.costs), env.info(played(env, weights)[0][-1])

    series = (each.numpy() for each in (done.factor.log(), weights.double(), done.traded, done.cost))
    report = performance(*series)._asdict()
    assert report["drawdown"] > 0.01
    assert {key: float(info[key]) for key in env.episode_stat_keys} == approx(
        {key: report[key] for key in env.episode_stat_keys}
    )


def test_a_ruined_account_terminates(tmp_path: Path) -> None:
    prices = synthetic_prices("WALK", bars=900)
    doubled = torch.where(torch.arange(900) > 790, 1.44, 1.0).numpy()
    columns = {name: getattr(prices, name) * doubled for name in ("open", "high", "low", "close")}
    path = write_prices(tmp_path / "X.csv", prices._replace(**columns))
    jumped = str(prices.time[791])[:10]
    env = Trading("X", str(path), split="test", embargo=5, cost_bps=6000, real_jumps=[jumped])

    state = start(env) | {"bar": torch.tensor([788]), "weight": torch.ones(1, dtype=torch.float64)}
    state, reward, terminated, truncated = env.transition(state, -torch.ones(1, 1), torch.rand(1, 2))

    assert terminated and not truncated
    assert math.isclose(float(reward) / 100, math.log(1e-6), rel_tol=1e-6)


def hourly(path: Path, symbol: str = "WALK") -> Path:
    """Seven bars a day, Monday to Friday."""
    prices = with_gaps(synthetic_prices(symbol, bars=1400, volatility=0.003), size=0.001)
    bars = np.arange(1400)
    days, hours = prices.time[bars // 7], (10 + bars % 7).astype("timedelta64[h]")
    return write_prices(path, prices._replace(time=days + hours))


def test_what_is_reported_or_charged_a_year_follows_the_time_stamps(tmp_path: Path) -> None:
    env = Trading("X", str(hourly(tmp_path / "X.csv")), split="test", embargo=5)
    weights = torch.rand(env.length) * 2 - 1
    gain = env.tables[torch.device("cpu")].gain[0, env.first : env.first + env.length]
    done, info = account(weights.double(), gain, env.costs), env.info(played(env, weights)[0][-1])

    returns = done.factor.numpy() - 1
    assert env.bars_per_year == 7 * 252 and env.costs.borrow == approx(0.02 / 1764)
    assert float(info["sharpe"]) == approx(returns.mean() / returns.std() * 1764**0.5)
    assert float(info["turnover"]) == approx(float(done.traded.mean()) * 1764)
    with pytest.raises(ConfigurationError, match=r"bars_per_year is 252, but the time stamps of .*X\.csv make 1764"):
        Trading("X", str(tmp_path / "X.csv"), split="test", embargo=5, bars_per_year=252)


def test_training_starts_anywhere_in_its_part_and_never_leaves_it() -> None:
    env = Trading("WALK,AR1", episode_bars=50, embargo=5, synthetic={"bars": 900})
    first, last = env.days.train

    state = start(env, 60_000)

    assert int(state["bar"].min()) == first and int(state["end"].max()) <= last - 1
    assert state["bar"].unique().numel() == env.starts and state["symbol"].unique().tolist() == [0, 1]
    assert env.starts + env.length == last - first


def test_outside_training_rows_trade_every_symbol_in_turn_from_the_first_bar() -> None:
    state = start(env := Trading("WALK,AR1", split="val", embargo=5), 5)

    assert state["symbol"].tolist() == [0, 1, 0, 1, 0] and (state["bar"] == env.days.val[0]).all()
    assert (state["end"] == env.days.val[1] - 1).all()


def test_position_limits_and_discrete_actions() -> None:
    env = Trading(discrete=True, max_short=0.0, max_long=0.5, **SMALL)

    state, *_ = env.transition(start(env, 3), torch.tensor([0, 1, 2]), torch.rand(3, 2))

    assert state["weight"].tolist() == [0, 0, 0.5] and env.spaces["action_sizes"] == [3]


def test_the_observation_shows_the_position_as_it_is_at_the_close() -> None:
    env = Trading("REGIMES", split="val", **SMALL)
    states, *_ = played(env, torch.tensor([0.5, 0.5, -0.5]))
    prices, bar = env.prices[0], env.first + 2

    obs = env.observation(states[2])[0]

    opening, close = prices.open, prices.close
    gains = opening[bar] / opening[bar - 1] - 1, close[bar] / opening[bar] - 1
    assert obs[INDEX["side"]] == 1 and math.isclose(obs[INDEX["duration"]], 2 / 20, rel_tol=1e-6)
    assert math.isclose(obs[INDEX["size"]], 0.5 * (1 + gains[1]) / (1 + 0.5 * gains[1]), rel_tol=1e-6)
    assert math.isclose(obs[INDEX["profit"]], 10 * math.log(close[bar] / opening[bar - 1]), rel_tol=1e-4, abs_tol=1e-6)
    known = (
        math.log1p(0.5 * gains[0] - 0.0005),
        math.log1p(0.5 * gains[1] - 0.001 * abs(0.5 - 0.5 * (1 + gains[0]) / (1 + 0.5 * gains[0]))),
    )
    assert math.isclose(obs[INDEX["drawdown"]], 10 * min(0, sum(known) - max(0, known[0])), rel_tol=1e-4, abs_tol=1e-6)


def test_the_option_mask_is_where_the_six_options_say_they_begin() -> None:
    env = Trading("REGIMES", option_mask=True, **SMALL)
    states = start(env, 500)
    states, *_ = env.transition(states, torch.rand(500, 1) * 2 - 1, torch.rand(500, 2))

    mask, obs = env.info(states)["option_mask"], env.observation(states)

    assert torch.equal(mask, torch.stack([option().initiation(obs) for option in DEFAULT_OPTIONS], 1))
    assert mask[:, -1].all() and mask.any(0).sum() >= 4


def test_it_is_a_gymnasium_environment() -> None:
    check_env(gym.make("Trading-v0", **SMALL).unwrapped, skip_render_check=True)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"window": 0}, "window is 0"),
        ({"cost_bps": -1}, "cost_bps is -1"),
        ({"max_long": 2}, "max_long is 2"),
        ({"split": "exam"}, "no split 'exam'"),
        ({"execution": "noon"}, "open or close"),
        ({"synthetic": {"bars": 210}}, "leaves .* bars for"),
        ({"synthetic": {"bars": "many"}}, r"synthetic\.bars of REGIMES is 'many'; it must be a whole number"),
        ({"synthetic": {"barz": 900}}, r"REGIMES takes no synthetic\.barz: did you mean bars"),
        ({"synthetic": {"bars": 0}}, r"synthetic\.bars of REGIMES is 0; choose at least 1"),
        ({"synthetic": {"stay": 1.5}}, r"synthetic\.stay of REGIMES is 1\.5; choose from 0 to 1"),
        ({"synthetic": {"volatility": [0.1, -1]}}, r"synthetic\.volatility of REGIMES is .*; choose at least 0"),
        ({"fold": 7}, "fold is 7"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Trading(**{"synthetic": {"bars": 900}, **arguments})
