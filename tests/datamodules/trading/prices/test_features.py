import numpy as np

from datamodules.trading.prices.features import NAMES, WARMUP, market_features
from datamodules.trading.prices.synthetic import synthetic_prices
from tests.support.price_fixtures import changed_after


def column(table: np.ndarray, name: str) -> np.ndarray:
    return table[:, NAMES.index(name)]


def test_later_bars_change_nothing_before_them() -> None:
    prices = synthetic_prices("REGIMES", bars=600)

    before, after = market_features(prices), market_features(changed_after(prices, 400))

    assert np.array_equal(before[:401], after[:401]) and not np.array_equal(before[401], after[401])


def test_features_do_not_depend_on_the_level_of_prices() -> None:
    prices = synthetic_prices("WALK", bars=400)
    scaled = prices._replace(**{name: 7 * getattr(prices, name) for name in ("open", "high", "low", "close")})

    np.testing.assert_allclose(market_features(scaled), market_features(prices), atol=1e-5)


def test_they_restate_their_definitions() -> None:
    prices, bar = synthetic_prices("WALK", bars=400), 333
    table = market_features(prices)
    returns = np.diff(np.log(prices.close[bar - 60 : bar + 1]))

    assert np.isclose(column(table, "return_1")[bar], returns[-1] / returns.std(), atol=1e-6)
    assert np.isclose(column(table, "return_5")[bar], returns[-5:].sum() / returns.std() / 5**0.5, atol=1e-6)
    assert np.isclose(column(table, "volatility_60")[bar], np.log(returns.std() / 0.01), atol=1e-6)
    up, down = returns[-14:].clip(min=0).sum(), -returns[-14:].clip(max=0).sum()
    assert np.isclose(column(table, "rsi")[bar], (up - down) / (up + down), atol=1e-6)
    means = [prices.close[bar + 1 - length : bar + 1].mean() for length in (10, 20, 200)]
    assert np.isclose(column(table, "trend")[bar], 100 * np.log(means[0] / means[1]), atol=1e-5)
    assert np.isclose(column(table, "above_200")[bar], 10 * np.log(prices.close[bar] / means[2]), atol=1e-6)


def test_nothing_is_shown_before_the_warmup_and_everything_is_finite() -> None:
    prices = synthetic_prices("WALK", bars=300, volatility=0.0)  # a market that stands still

    table = market_features(prices)

    assert not table[:WARMUP].any() and np.isfinite(table).all() and np.abs(table).max() <= 5
