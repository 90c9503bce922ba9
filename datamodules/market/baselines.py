"""Policies that nobody has to train: what a trained one must be compared with, on the same days at the same costs.

Each is a path of weights `[bars]`; the weight of bar t depends on bars up to t alone.
"""

import numpy as np

from datamodules.market.prices import Numbers, Prices, trailing

TARGET = 0.10
"""Volatility a year that `volatility_target` aims at."""


def buy_and_hold(prices: Prices, bars_per_year: int = 252) -> Numbers:
    """Everything invested, always."""
    return np.ones(len(prices.close))


def flat(prices: Prices, bars_per_year: int = 252) -> Numbers:
    """Cash."""
    return np.zeros(len(prices.close))


def half(prices: Prices, bars_per_year: int = 252) -> Numbers:
    """Half invested, rebalanced every bar."""
    return np.full(len(prices.close), 0.5)


def moving_average(prices: Prices, bars_per_year: int = 252) -> Numbers:
    """Invested while the mean close of 50 bars is above that of 200."""
    short, long = (trailing(prices.close, length).mean(-1) for length in (50, 200))
    return (short > long).astype(np.float64)


def momentum(prices: Prices, bars_per_year: int = 252) -> Numbers:
    """Invested while the price rose over the year that ended a month ago: 12-1 (Jegadeesh and Titman 1993)."""
    month, year = bars_per_year // 12, bars_per_year
    past = np.concatenate([np.full(year, prices.close[0]), prices.close])
    return (past[year - month : -month] > past[: len(prices.close)]).astype(np.float64)


def volatility_target(prices: Prices, bars_per_year: int = 252) -> Numbers:
    """As much, at most everything, as gives a volatility of 10 % a year, by that of the last 60 bars."""
    returns = np.concatenate([[0.0], np.diff(np.log(prices.close))])
    yearly = trailing(returns, 60).std(-1) * bars_per_year**0.5
    return np.minimum(1.0, TARGET / np.maximum(yearly, 1e-6))


def at_random(bars: int, turnover: float, seed: int = 0) -> Numbers:
    """Long or short, changing sides at random bars so often that it trades `turnover` a bar in the mean."""
    generator = np.random.default_rng(seed)
    changes = generator.random(bars) < min(turnover / 2, 1.0)
    return np.where((np.cumsum(changes) + generator.integers(2)) % 2 == 0, 1.0, -1.0)


BASELINES = {
    "buy and hold": buy_and_hold,
    "cash": flat,
    "half invested": half,
    "moving average 50/200": moving_average,
    "momentum 12-1": momentum,
    "volatility target 10 %": volatility_target,
}
