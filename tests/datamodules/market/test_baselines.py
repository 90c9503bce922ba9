import numpy as np
import pytest

from datamodules.market.baselines import BASELINES, at_random, momentum, moving_average, volatility_target
from datamodules.market.synthetic import prices_of, synthetic_prices
from tests.datamodules.market.bars import changed_after


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


def test_random_trades_as_much_as_asked() -> None:
    weight = at_random(100_000, turnover=0.1)

    assert abs(np.abs(np.diff(weight)).mean() - 0.1) < 0.005 and abs(weight.mean()) < 0.05
