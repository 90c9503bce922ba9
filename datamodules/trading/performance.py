"""What an account earned, what it risked, and how sure one can be of it."""

from typing import NamedTuple

import numpy as np

from datamodules.trading.prices.price_files import Numbers

LARGEST_BLOCK = 2**22
"""Returns that a bootstrap holds at once, 32 MiB."""

LEAST_DEVIATION = 1e-8
"""Floor of a standard deviation a bar: the Sharpe ratio of cash is 0, not undefined."""


class Performance(NamedTuple):
    """Of one account over one window of days.

    log_return: total.   cagr: growth a year.   sharpe: mean over deviation of simple returns, a year, cash earning
    nothing.   drawdown: largest fall from a peak, as a part of it.   turnover: bought and sold, in equities a year.
    cost: paid in all, in log equity.   exposure: mean absolute weight.
    """

    log_return: float
    cagr: float
    sharpe: float
    drawdown: float
    turnover: float
    cost: float
    exposure: float


def performance(
    growth: Numbers, weight: Numbers, traded: Numbers, cost: Numbers, *, bars_per_year: int = 252
) -> Performance:
    """From log returns, weights, trades and costs of every bar `[bars]`, the last three as parts of the equity."""
    years = len(growth) / bars_per_year
    equity = np.concatenate([[0.0], np.cumsum(growth)])
    return Performance(
        log_return=float(equity[-1]),
        cagr=float(np.expm1(equity[-1] / years)),
        sharpe=float(sharpe_ratio(np.expm1(growth), bars_per_year)),
        drawdown=float(np.abs(np.expm1((equity - np.maximum.accumulate(equity)).min()))),
        turnover=float(traded.sum() / years),
        cost=float(cost.sum()),
        exposure=float(np.abs(weight).mean()),
    )


def sharpe_ratio(returns: Numbers, bars_per_year: int = 252) -> Numbers:
    """Mean over standard deviation along the last dimension, a year."""
    deviation = np.maximum(returns.std(-1), LEAST_DEVIATION)
    return np.asarray(returns.mean(-1) / deviation * bars_per_year**0.5)


def sharpe_difference_interval(
    first: Numbers, second: Numbers, *, bars_per_year: int = 252, block: int = 20, draws: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """95 % interval of the difference of two Sharpe ratios over the same bars, by a circular block bootstrap.

    Both are drawn from the same blocks, so that what they share cancels; blocks keep what depends on the bars before.

    Args:
        first, second: simple returns, `[bars]`.   block: bars in a block.

    Source: Politis and Romano 1992 for the circular blocks; percentiles, as in Ledoit and Wolf 2008, section 3.2.
    """
    bars = len(first)
    starts = np.random.default_rng(seed).integers(bars, size=(draws, -(-bars // block), 1))
    differences = []
    for part in np.array_split(starts, -(-draws * bars // LARGEST_BLOCK)):
        index = ((part + np.arange(block)) % bars).reshape(len(part), -1)[:, :bars]
        differences.append(sharpe_ratio(first[index], bars_per_year) - sharpe_ratio(second[index], bars_per_year))
    difference = np.concatenate(differences)
    low, high = np.quantile(difference, (0.025, 0.975))
    return float(low), float(high)
