"""Price files for tests."""

from pathlib import Path

import numpy as np

from datamodules.market.prices import Prices
from datamodules.market.synthetic import synthetic_prices

HEADER = "Date,Open,High,Low,Close,Volume"
GOOD = ["2020-01-02,10,11,9,10.5,100", "2020-01-03,10.5,11,10,10.8,120", "2020-01-06,10.8,12,10.7,11.5,90"]


def write_lines(path: Path, lines: list[str], header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def write_prices(path: Path, prices: Prices) -> Path:
    """A CSV that reads back bit for bit."""
    columns = zip(prices.open, prices.high, prices.low, prices.close, prices.volume, strict=True)
    days = prices.time.astype("datetime64[D]")
    return write_lines(
        path, [",".join([str(day), *map(repr, map(float, row))]) for day, row in zip(days, columns, strict=True)]
    )


def changed_after(prices: Prices, bar: int) -> Prices:
    """The same up to a bar, another market after it."""
    other = synthetic_prices("WALK", bars=len(prices.close), seed=99, volatility=0.02)
    factor = prices.close[bar] / other.close[bar]
    later = np.arange(len(prices.close)) > bar
    columns = [np.where(later, new * factor, old) for old, new in zip(prices[2:], other[2:], strict=True)]
    return Prices(prices.symbol, prices.time, *columns)
