"""Baseline policies without training, for comparison on the same days at the same costs.

Each is a path of weights `[bars]`; the weight of bar t depends only on bars up to t.
"""

from collections.abc import Iterator

import numpy as np

from datamodules.trading.prices.price_files import Numbers, Prices, trailing

TARGET = 0.10
"""Target volatility per year of `volatility_target`."""

DRAWS, FEWEST = 200, 8
"""Maximum and minimum number of paths of `random_timing`; fewer if the weights do not allow the minimum."""


def buy_and_hold(prices: Prices, bars_per_year: int = 252) -> Numbers:
    """Return a weight of 1 on all bars."""
    return np.ones(len(prices.close))


def all_cash(prices: Prices, bars_per_year: int = 252) -> Numbers:
    """Return a weight of 0 on all bars."""
    return np.zeros(len(prices.close))


def half_invested(prices: Prices, bars_per_year: int = 252) -> Numbers:
    """Return a weight of 0.5, rebalanced every bar."""
    return np.full(len(prices.close), 0.5)


def moving_average(prices: Prices, bars_per_year: int = 252) -> Numbers:
    """Return 1 while the mean close of 50 bars is above that of 200, else 0."""
    short, long = (trailing(prices.close, length).mean(-1) for length in (50, 200))
    return (short > long).astype(np.float64)


def momentum(prices: Prices, bars_per_year: int = 252) -> Numbers:
    """Return 1 while the price rose over the year that ended a month ago: 12-1 (Jegadeesh and Titman 1993), else 0."""
    bars, year = len(prices.close), bars_per_year
    past = np.concatenate([np.full(year, prices.close[0]), prices.close])
    recent = year - max(1, bars_per_year // 12)
    return (past[recent : recent + bars] > past[:bars]).astype(np.float64)


def volatility_target(prices: Prices, bars_per_year: int = 252) -> Numbers:
    """Return the weight, at most 1, that gives 10 % volatility per year, by that of the last 60 bars."""
    returns = np.concatenate([[0.0], np.diff(np.log(prices.close))])
    yearly = trailing(returns, 60).std(-1) * bars_per_year**0.5
    return np.minimum(1.0, TARGET / np.maximum(yearly, 1e-6))


def random_timing(weight: Numbers, seed: int = 0) -> Iterator[Numbers]:
    """Yield up to 200 paths that hold the weights of another one, `[bars]`, in the same order but at random times.

    The path is rotated by a random number of bars, so that exposure, long and short alike, and limits are unchanged.
    The cut adds or removes one trade: cuts are drawn among those that change the sum of trades by at most 2 %, or among
    the 8 that change it least if there are fewer. Apart from drift, the turnover is unchanged.
    """
    before = np.roll(weight, 1)
    turnover = np.abs(np.diff(weight, prepend=0.0)).sum()
    change = np.abs(weight) - np.abs(weight - before) + np.abs(weight[0] - weight[-1]) - np.abs(weight[0])
    cuts = 1 + np.argsort(np.abs(change[1:]), kind="stable")  # a cut at 0 is the path itself
    cuts = cuts[: max(FEWEST, int((np.abs(change[1:]) <= 0.02 * turnover).sum()))]
    drawn = np.random.default_rng(seed).permutation(cuts)[:DRAWS] if len(cuts) else np.zeros(1, np.int64)
    yield from (np.roll(weight, -int(cut)) for cut in drawn)


BASELINES = {
    "buy and hold": buy_and_hold,
    "cash": all_cash,
    "half invested": half_invested,
    "moving average 50/200": moving_average,
    "momentum 12-1": momentum,
    "volatility target 10 %": volatility_target,
}
