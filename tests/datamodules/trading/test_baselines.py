import numpy as np
import pytest

from datamodules.trading.baselines import BASELINES, momentum, moving_average, random_timing, volatility_target
from datamodules.trading.prices.synthetic import prices_of, synthetic_prices
from tests.support.price_fixtures import changed_after


@pytest.mark.parametrize("name", BASELINES)
def test_later_bars_change_no_earlier_weight(name: str) -> None:
    prices = synthetic_prices("REGIMES", bars=900)

    before, after = BASELINES[name](prices), BASELINES[name](changed_after(prices, 600))

    assert np.array_equal(before[:601], after[:601]) and (np.abs(before) <= 1).all()


def test_they_follow_a_market_that_rises_and_leave_one_that_falls() -> None:
    returns = np.concatenate([np.full(600, 0.001), np.full(600, -0.001)])
    prices = prices_of("UP", returns)

    for rule in (moving_average, momentum):
        assert rule(prices)[500] == 1 and rule(prices)[1100] == 0
    assert momentum(prices)[700] == 1 and momentum(prices)[756] == 0  # 12-1: 735 minus 504 bars, then it falls behind


def test_volatility_target_holds_less_of_a_wilder_market() -> None:
    calm, wild = (synthetic_prices("WALK", bars=400, volatility=each) for each in (0.004, 0.02))

    assert volatility_target(calm)[300] == 1.0
    assert abs(volatility_target(wild)[200:].mean() - 0.1 / (0.02 * 252**0.5)) < 0.03


@pytest.mark.parametrize("bars_per_year", [4, 12, 52, 365, 1764])
def test_momentum_compares_a_year_ago_with_a_month_ago_in_any_bars(bars_per_year: int) -> None:
    bars, month = 4000, max(1, bars_per_year // 12)
    prices = synthetic_prices("WALK", bars=bars)

    weight = momentum(prices, bars_per_year)

    assert weight[3000] == (prices.close[3000 - month] > prices.close[3000 - bars_per_year])


def path_of(kind: str) -> np.ndarray:
    """Weights of an agent, 600 bars."""
    random, changes = np.random.default_rng(0), np.random.default_rng(1).random(600) < 0.05
    return {
        "any": random.random(600) * 2 - 1,
        "long only": random.random(600),
        "in and out": np.cumsum(changes) % 2.0,
        "long and short": 1 - np.cumsum(changes) % 2 * 2.0,
        "few trades": (np.arange(600) // 100 % 2).astype(np.float64),
        "held": np.full(600, 0.3),
        "cash": np.zeros(600),
    }[kind]


@pytest.mark.parametrize("kind", ["any", "long only", "in and out", "long and short", "few trades", "held", "cash"])
def test_random_policies_hold_and_trade_as_much_as_the_agent(kind: str) -> None:
    weight = path_of(kind)

    paths = list(random_timing(weight))

    assert len(paths) > 20 or kind == "few trades"
    traded = [np.abs(np.diff(path, prepend=0.0)).sum() for path in paths]
    assert np.mean(traded) == pytest.approx(
        np.abs(np.diff(weight, prepend=0.0)).sum(), rel=0.05 if kind != "few trades" else 0.2
    )
    assert all(np.array_equal(np.sort(path), np.sort(weight)) for path in paths)


def test_random_policies_know_nothing_of_the_market() -> None:
    """An agent that sees the next return: what is left of its earnings is that of no skill."""
    returns = np.diff(np.log(synthetic_prices("WALK", bars=2001).close))
    skilled = np.sign(returns)

    earned = [float((path * returns).sum()) for path in random_timing(skilled)]

    assert (skilled * returns).sum() > 10 and abs(np.mean(earned)) < 0.2 and len(earned) == 200
