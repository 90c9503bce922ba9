"""Return, risk and confidence intervals of an account, and the length of record that they need."""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from datamodules.trading.prices.price_files import Numbers

LARGEST_BLOCK = 2**22
"""Number of returns that a bootstrap holds in memory at once, 32 MiB."""

LEAST_DEVIATION = 1e-8
"""Lower bound of a standard deviation per bar, so that the Sharpe ratio of cash is 0 instead of undefined."""


class Performance(NamedTuple):
    """Performance of one account over one period.

    log_return: total.   cagr: growth per year.   sharpe: mean over deviation of simple returns, per year, with zero
    return of cash.   drawdown: largest relative fall from a peak.   turnover: traded volume in equities per year.
    cost: total cost, in log equity.   exposure: mean absolute weight.
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
    """Compute from log returns, weights, trades and costs of every bar `[bars]`, the last three relative to equity."""
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
    """Return mean over standard deviation along the last dimension, annualised."""
    deviation = np.maximum(returns.std(-1), LEAST_DEVIATION)
    return np.asarray(returns.mean(-1) / deviation * bars_per_year**0.5)


def sharpe_difference_interval(
    first: Numbers, second: Numbers, *, bars_per_year: int = 252, block: int = 20, draws: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Return the 95 % interval of the difference of two Sharpe ratios on the same bars, by circular block bootstrap.

    Both are resampled with the same blocks, so that common effects cancel; blocks preserve serial dependence.

    Args:
        first, second: simple returns, `[bars]`.   block: bars per block.

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


def min_track_record_length(excess: Numbers, confidence: float = 0.975) -> float:
    """Return the bars after which a mean return would be significantly above 0; infinite if it is not above 0.

    1 + (1 - g3 S + (g4 - 1) / 4 S^2) (z / S)^2,   S mean over deviation, g3 skewness, g4 kurtosis, z normal quantile

    Args:
        excess: independent returns of bars, `[bars]`.
        confidence: probability with which the Sharpe ratio is above 0; 0.975 agrees with a two-sided 95 % interval.

    Source: Bailey and Lopez de Prado 2012, "The Sharpe Ratio Efficient Frontier": minimum track record length
    """
    deviation = max(float(excess.std()), LEAST_DEVIATION)
    sharpe = float(excess.mean()) / deviation
    if sharpe <= 0:
        return math.inf
    skewness, kurtosis = (float((((excess - excess.mean()) / deviation) ** power).mean()) for power in (3, 4))
    spread = 1 - skewness * sharpe + (kurtosis - 1) / 4 * sharpe**2
    return 1 + spread * (NormalDist().inv_cdf(confidence) / sharpe) ** 2


def standardized_difference(first: Numbers, second: Numbers) -> Numbers:
    """Return the differences of two accounts' simple returns `[bars]`, each divided by its deviation.

    Their mean is the difference of the Sharpe ratios per bar.
    """
    one, other = (returns / max(float(returns.std()), LEAST_DEVIATION) for returns in (first, second))
    return np.asarray(one - other)
