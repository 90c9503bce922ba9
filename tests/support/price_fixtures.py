"""Price files for tests."""

from pathlib import Path

import numpy as np

from datamodules.trading.prices.price_files import Prices
from datamodules.trading.prices.synthetic import synthetic_prices

HEADER = "Date,Open,High,Low,Close,Volume"
GOOD = ["2020-01-02,10,11,9,10.5,100", "2020-01-03,10.5,11,10,10.8,120", "2020-01-06,10.8,12,10.7,11.5,90"]


def write_lines(path: Path, lines: list[str], header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def write_prices(path: Path, prices: Prices) -> Path:
    """A CSV that reads back bit for bit."""
    columns = zip(prices.open, prices.high, prices.low, prices.close, prices.volume, strict=True)
    days = prices.time.astype("datetime64[D]")
    days = days if (days == prices.time).all() else prices.time
    return write_lines(
        path, [",".join([str(day), *map(repr, map(float, row))]) for day, row in zip(days, columns, strict=True)]
    )


def with_gaps(prices: Prices, seed: int = 0, size: float = 0.01) -> Prices:
    """Bars that open elsewhere than the last one closed, by a normal log gap of standard deviation `size`."""
    opening = prices.open * np.exp(size * np.random.default_rng(seed).standard_normal(len(prices.open)))
    high, low = np.maximum(prices.high, opening), np.minimum(prices.low, opening)
    return prices._replace(open=opening, high=high, low=low)


def changed_after(prices: Prices, bar: int) -> Prices:
    """The same up to a bar, another market after it."""
    other = synthetic_prices("WALK", bars=len(prices.close), seed=99, volatility=0.02)
    factor = prices.close[bar] / other.close[bar]
    later = np.arange(len(prices.close)) > bar
    columns = [np.where(later, new * factor, old) for old, new in zip(prices[2:], other[2:], strict=True)]
    return Prices(prices.symbol, prices.time, *columns)
