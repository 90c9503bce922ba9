"""Load the bars of symbols by name: from a file, a folder, the packaged index, or a synthetic market."""

import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from datamodules.core.errors import ConfigurationError
from datamodules.trading.prices.parsing.table import SUFFIXES
from datamodules.trading.prices.price_files import Dated, Prices, RealJumps, bars_of, open_prices, symbol_of
from datamodules.trading.prices.synthetic import MARKETS, synthetic_prices

INDEX_NAMES = ("SPX", "SPY", "^GSPC")
INDEX = "the S&P 500 index 1999-2018 that the package arch ships; it pays no dividends and cannot be bought"


def load_prices(
    symbol: str,
    prices: str | None = None,
    synthetic: dict[str, object] | None = None,
    real_jumps: RealJumps = (),
    price_format: Mapping[str, Any] | None = None,
) -> list[Prices]:
    """Return the bars of every symbol, restricted to the instants that all of them have.

    Args:
        symbol: one name, several separated by commas, or `all` for every file of a folder, or symbol of a file.
        prices: a file or a folder of files named after symbols; without it a symbol is a synthetic market (`WALK`,
            `AR1`, `REGIMES`) or the packaged index (`SPX`, also called `SPY`).
        synthetic: settings of the synthetic market.
        real_jumps: days whose jumps are not splits (`datamodules.trading.prices.price_files.bars_of`).
        price_format: settings for files that can be read in more than one way
            (`datamodules.trading.prices.parsing.price_format.PriceFormat`).

    Raises: ConfigurationError for sources that cannot be found or read, and for symbols with too few common bars.
    """
    names = _names(symbol)
    if prices is None:
        return _aligned([_by_name(name, synthetic or {}) for name in names])
    if synthetic:
        raise ConfigurationError("synthetic and prices are two sources for the same market: give one of them.")
    path = Path(prices)
    if not path.is_dir():
        return _aligned(_of_file(path, symbol, names, real_jumps, price_format))
    files = _files(path)
    names = sorted(files) if symbol == "all" else names
    missing = [name for name in names if name not in files]
    if missing or not names:  # no names: an empty folder
        raise ConfigurationError(
            f"{path} holds no prices of {', '.join(missing) or symbol}, only {', '.join(files) or 'none'}."
        )
    return _aligned([bars_of(open_prices(files[name], price_format), name, real_jumps) for name in names])


def _of_file(
    path: Path, symbol: str, names: list[str], real_jumps: RealJumps, price_format: Mapping[str, Any] | None
) -> list[Dated]:
    """Return the bars of the symbols of one file."""
    file = open_prices(path, price_format)
    held = file.content.symbols
    if symbol == "all":
        return [bars_of(file, name, real_jumps) for name in (sorted(held) if len(held) > 1 else [None])]
    if len(names) > 1 and len(held) < 2:
        raise ConfigurationError(
            f"prices is one file, {path}, for {len(names)} symbols, {symbol}: give a folder of files, or a file with a"
            " column of symbols."
        )
    return [bars_of(file, name, real_jumps) for name in names]


def _files(folder: Path) -> dict[str, Path]:
    """Return the price files of a folder by symbol; `.txt` only if there are no others, since notes are text too."""
    files: dict[str, Path] = {}
    shown = [file for file in sorted(folder.iterdir()) if not file.name.startswith(".") and file.is_file()]
    found = [file for file in shown if file.name.lower().endswith(SUFFIXES)]
    for file in [file for file in found if ".txt" not in file.name.lower()[-8:]] or found:
        name = symbol_of(file)
        if name in files:
            raise ConfigurationError(
                f"{folder} holds two files of {name}, {files[name].name} and {file.name}: remove one."
            )
        files[name] = file
    return files


def describe_source(symbol: str, prices: str | None = None) -> str:
    """Describe the source of the prices for a report."""
    if prices is not None:
        return f"{symbol} from {prices}"
    return ". ".join(f"{name}: {INDEX if name in INDEX_NAMES else 'synthetic'}" for name in _names(symbol))


def _names(symbol: str) -> list[str]:
    names = [name.strip() for name in symbol.split(",") if name.strip()]
    if not names:
        raise ConfigurationError("symbol is empty: name one, several with commas between, or all.")
    if len(set(names)) < len(names):
        raise ConfigurationError(f"symbol is {symbol!r}, which names one twice.")
    return names


def _by_name(name: str, synthetic: dict[str, object]) -> Dated:
    if name in MARKETS:
        return Dated(synthetic_prices(name, **synthetic), None)
    if name not in INDEX_NAMES:
        raise ConfigurationError(
            f"There are no prices of {name}: give prices, a CSV or Parquet file or a folder of them, or choose"
            f" from {', '.join((*MARKETS, *INDEX_NAMES))}."
        )
    if synthetic:
        raise ConfigurationError(
            f"{name} is not a synthetic market: leave synthetic out, or choose from {', '.join(MARKETS)}."
        )
    return packaged_index(name)


@cache
def packaged_index(name: str) -> Dated:
    """Return the bars of the packaged index, which are read once; training, evaluation and reports make environments.

    Raises: ConfigurationError without the package.
    """
    package = importlib.util.find_spec("arch")  # located without importing it, which takes seconds
    if package is None or package.origin is None:
        raise ConfigurationError(f"The prices of {name} come with the package arch: pip install -e '.[trading]'.")
    return bars_of(open_prices(Path(package.origin).parent / "data" / "sp500" / "sp500.csv.gz"), name)


def _aligned(found: list[Dated]) -> list[Prices]:
    """Return the bars that all symbols have, by instant."""
    symbols = [each.prices.symbol for each in found]
    zoned = [each.instant is not None for each in found]
    if any(zoned) and not all(zoned):
        aware, naive = symbols[zoned.index(True)], symbols[zoned.index(False)]
        raise ConfigurationError(
            f"The times of {aware} have a time zone and those of {naive} have none: give them all one, as"
            " 2020-12-31T16:00-05:00, or none."
        )
    times = [(each.prices.time if each.instant is None else each.instant).tolist() for each in found]
    common = set.intersection(*map(set, times))
    if len(common) < 0.9 * min(map(len, times)):
        raise ConfigurationError(
            f"{', '.join(symbols)} have only {len(common)} bars in common, of {min(map(len, times))} at most: cut the"
            " files to the same years, and give bars of one moment one time stamp."
        )
    keep = [np.array([moment in common for moment in each]) for each in times]
    return [
        Prices(each.prices.symbol, *(column[rows] for column in each.prices[1:]))
        for each, rows in zip(found, keep, strict=True)
    ]
