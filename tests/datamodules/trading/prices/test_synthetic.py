import numpy as np

from datamodules.trading.prices.synthetic import (
    autoregressive,
    known_regime,
    random_walk,
    regime,
    regimes,
    synthetic_prices,
)


def test_the_autoregressive_market_has_its_correlation_and_volatility() -> None:
    returns = autoregressive(bars=100_000, phi=0.3, volatility=0.01)

    assert abs(np.corrcoef(returns[1:], returns[:-1])[0, 1] - 0.3) < 0.01
    assert abs(returns.std() / 0.01 - 1) < 0.02


def test_the_random_walk_forgets() -> None:
    returns = random_walk(bars=100_000, drift=0.0)

    assert abs(np.corrcoef(returns[1:], returns[:-1])[0, 1]) < 0.01 and abs(returns.mean()) < 1e-4


def test_regimes_rise_calmly_and_fall_wildly() -> None:
    returns, state = regimes(bars=100_000, seed=3), regime(100_000, 3)
    calm, wild = returns[state == 0], returns[state == 1]

    assert abs(calm.mean() - 0.001) < 2e-4 and abs(wild.mean() + 0.001) < 4e-4
    assert abs(calm.std() / 0.008 - 1) < 0.02 and abs(wild.std() / 0.016 - 1) < 0.02
    assert 0.015 < np.mean(state[1:] != state[:-1]) < 0.025


def test_bars_open_at_the_last_close_and_enclose_it() -> None:
    prices = synthetic_prices("REGIMES", bars=500, seed=2)

    assert np.array_equal(prices.open[1:], prices.close[:-1])
    assert (prices.high >= np.maximum(prices.open, prices.close)).all()
    assert (prices.low <= np.minimum(prices.open, prices.close)).all()
    assert (np.diff(prices.time) > np.timedelta64(0)).all()


def test_the_regime_of_a_market_is_known_from_its_settings_and_other_markets_have_none() -> None:
    known = known_regime("REGIMES", {"bars": 700, "seed": 4, "drift": 0.0})

    assert known is not None and np.array_equal(known, regime(700, 4))
    assert known_regime("WALK", {}) is None
