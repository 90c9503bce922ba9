"""The bars behind a symbol's name: a file, a folder, the packaged index, or a synthetic market."""

import importlib.util
from pathlib import Path

import numpy as np

from datamodules.market.prices import Prices, read_prices
from datamodules.market.synthetic import MARKETS, synthetic_prices
from datamodules.types import UsageError

INDEX_NAMES = ("SPX", "SPY", "^GSPC")
INDEX = "the S&P 500 index 1999-2018 that the package arch ships; it pays no dividends and cannot be bought"
SUFFIXES = (".csv", ".csv.gz", ".parquet")


def markets(symbol: str, prices: str | None = None, synthetic: dict[str, object] | None = None) -> list[Prices]:
    """Bars of every symbol, cut to the times that all of them have.

    Args:
        symbol: one name, several with commas between, or `all` for every file of a folder.
        prices: a file or a folder of files named after symbols; without it a symbol is a synthetic market (`WALK`,
            `AR1`, `REGIMES`) or the packaged index (`SPX`, also called `SPY`).
        synthetic: settings of the synthetic market.

    Raises: UsageError for what cannot be found or read, and for symbols with too few bars in common.
    """
    if prices is None:
        return _aligned([_by_name(name, synthetic or {}) for name in _names(symbol)])
    if synthetic:
        raise UsageError("synthetic and prices are two sources for one market: give one of them.")
    path = Path(prices)
    if not path.is_dir():
        return [read_prices(path, symbol)]
    files = {file.name.split(".")[0]: file for file in sorted(path.iterdir()) if file.name.endswith(SUFFIXES)}
    names = sorted(files) if symbol == "all" else _names(symbol)
    missing = [name for name in names if name not in files]
    if missing or not names:
        raise UsageError(
            f"{path} holds no prices of {', '.join(missing) or symbol}, only {', '.join(files) or 'none'}."
        )
    return _aligned([read_prices(files[name], name) for name in names])


def described(symbol: str, prices: str | None = None) -> str:
    """Where the prices come from, for a reader of a report."""
    if prices is not None:
        return f"{symbol} from {prices}"
    return ". ".join(f"{name}: {INDEX if name in INDEX_NAMES else 'synthetic'}" for name in _names(symbol))


def _names(symbol: str) -> list[str]:
    return [name.strip() for name in symbol.split(",") if name.strip()]


def _by_name(name: str, synthetic: dict[str, object]) -> Prices:
    if name in MARKETS:
        return synthetic_prices(name, **synthetic)
    if name not in INDEX_NAMES:
        raise UsageError(
            f"There are no prices of {name} here: give prices, a CSV or Parquet file or a folder of them, or choose"
            f" from {', '.join((*MARKETS, *INDEX_NAMES))}."
        )
    if synthetic:
        raise UsageError(f"{name} is no synthetic market: leave synthetic out, or choose from {', '.join(MARKETS)}.")
    package = importlib.util.find_spec("arch")  # found, not imported: that takes seconds
    if package is None or package.origin is None:
        raise UsageError(f"The prices of {name} come with the package arch: pip install -e '.[trading]'.")
    return read_prices(Path(package.origin).parent / "data" / "sp500" / "sp500.csv.gz", name)


def _aligned(found: list[Prices]) -> list[Prices]:
    """Only the bars that all symbols have."""
    if len(found) < 2:
        return found
    common = set.intersection(*(set(each.time.tolist()) for each in found))
    if len(common) < 0.9 * min(len(each.time) for each in found):
        raise UsageError(
            f"{', '.join(each.symbol for each in found)} have only {len(common)} bars in common: cut the files to the"
            " same years."
        )
    keep = [np.array([time in common for time in each.time.tolist()]) for each in found]
    return [Prices(each.symbol, *(column[rows] for column in each[1:])) for each, rows in zip(found, keep, strict=True)]
