"""Read bars of one symbol from a CSV or Parquet file, find columns by name and check every line."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from lightning.pytorch.utilities import rank_zero_warn
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from datamodules.core.errors import ConfigurationError
from datamodules.trading.prices.parsing.columns import find_columns
from datamodules.trading.prices.parsing.header import Content, find_content, select_symbol
from datamodules.trading.prices.parsing.numbers import PRICES, parse_numbers
from datamodules.trading.prices.parsing.price_format import PriceFormat, make_price_format
from datamodules.trading.prices.parsing.table import SUFFIXES, Table, read_table
from datamodules.trading.prices.parsing.times import Times, parse_times

if TYPE_CHECKING:
    import pandas

Numbers = NDArray[np.float64]

MAX_GAP_DAYS, MAX_GAP_BARS = 14, 3
"""Longest gap between two bars that holidays explain: in days, and in multiples of the usual interval."""

OVERNIGHT, WITHIN = 1.18, 1.8
"""Factors between a close and the next open, and between the open and close of one bar, above which a price change is
taken for an unadjusted split: 5 for 4 is 1.25, and a day may add 5 %; a split within a weekly bar is at least 2 for 1.
"""

ROUNDING = 1e-3
"""Share by which a vendor's rounding may put high and low inside open and close."""

RealJumps = Sequence[str] | str
"""Days whose price jumps are not splits, such as 2020-03-16, or `all`."""


class Prices(NamedTuple):
    """Bars in order of time; every array is `[bars]`.

    time: local time of the file, datetime64[s].   open, high, low, close: positive, adjusted by one factor per bar if
    the file has adjusted closes.   volume: in any unit, zeros if unknown.
    """

    symbol: str
    time: NDArray[np.datetime64]
    open: Numbers
    high: Numbers
    low: Numbers
    close: Numbers
    volume: Numbers


class Dated(NamedTuple):
    """Bars and the `instant` of each: the time in UTC, datetime64[s] `[bars]`; None if the file has no time zones."""

    prices: Prices
    instant: NDArray[np.datetime64] | None


class PriceFile(NamedTuple):
    """File that has been read, with the settings of its format."""

    path: Path
    content: Content
    separator: str
    settings: PriceFormat


def symbol_of(path: Path) -> str:
    """Return the symbol that a file is named after: its name without `.csv`, `.csv.gz`, `.parquet` and the like."""
    suffixes = [suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)]
    return path.name[: -max(map(len, suffixes))] if suffixes else path.name


def read_prices(
    path: str | Path,
    symbol: str | None = None,
    real_jumps: RealJumps = (),
    price_format: Mapping[str, Any] | None = None,
) -> Prices:
    """Read the bars of one symbol from a file.

    Args:
        symbol: name of the symbol, and the one that is used of a file that holds several; the file's name by default.
        real_jumps, price_format: as for `bars_of` and `open_prices`.

    Raises: ConfigurationError as `open_prices` and `bars_of`.
    """
    return bars_of(open_prices(path, price_format), symbol, real_jumps).prices


def open_prices(path: str | Path, price_format: Mapping[str, Any] | None = None) -> PriceFile:
    """Read the text of a file: CSV and its kin, compressed or not, or Parquet.

    Args:
        price_format: settings for a file that can be read in more than one way
            (`datamodules.trading.prices.parsing.price_format.PriceFormat`).

    Raises: ConfigurationError for a missing or damaged file, and one that is not a table.
    """
    path, settings = Path(path), make_price_format(price_format)
    if not path.is_file():
        raise ConfigurationError(
            f"There is no price file {path}: give a CSV or Parquet file with date, open, high, low, close."
        )
    table: Table = read_table(path, settings)
    return PriceFile(path, find_content(table.cells, settings, path), table.separator, settings)


def bars_of(file: PriceFile, symbol: str | None = None, real_jumps: RealJumps = ()) -> Dated:
    """Return the checked bars of one symbol of a file; files in descending order of time are reversed.

    Warns about columns that are not used, and about rows without prices (dividends, holidays), which are dropped.

    Args:
        symbol: name of the symbol; the file's name by default. A file with several symbols must hold it.
        real_jumps: days with genuine price jumps, such as 2020-03-16, or `all`; a jump on another day is taken for an
            unadjusted split.

    Raises:
        ConfigurationError: with file and line, for a missing column, a value that is not a positive number or can be
            read in two ways, a high below or a low above the other prices, times that repeat, decrease, have a gap of
            more than 14 days (three usual intervals, if longer) or only partly have a time zone, and jumps that look
            like a split.
    """
    path, allowed = file.path, _days(real_jumps)
    name = symbol or symbol_of(path)
    content = select_symbol(file.content, name, path, given=symbol is not None)
    columns = find_columns(content.header, path, content.line, file.settings.columns)
    rows = content.cells[(content.cells != "").any(axis=1)]
    numeric = {role: rows[place] for role, place in columns.items() if role not in ("time", "clock", "symbol")}
    values = parse_numbers(numeric, path, file.settings, file.separator)
    kept = _complete(rows, values, path, file.settings)
    if kept.sum() < 2:
        raise ConfigurationError(f"{path} holds {kept.sum()} bars, too few to trade.")
    rows, values = rows[kept], {role: column[kept] for role, column in values.items()}
    lines, clock = rows.index.to_numpy(), rows[columns["clock"]] if "clock" in columns else None
    _check_values(values, numeric, lines, path, ROUNDING if content.named else 0.0)
    times = parse_times(rows[columns["time"]], clock, path, file.settings)
    return _ordered(name, times, _adjusted(values), lines, path, allowed)


def _complete(
    rows: "pandas.DataFrame", values: dict[str, Numbers], path: Path, settings: PriceFormat
) -> NDArray[np.bool_]:
    """Return which rows have prices; volumes that are missing everywhere become zeros.

    Raises: ConfigurationError for a row in which only some values are missing, unless these are dropped by setting.
    """
    if "volume" not in values or np.isnan(values["volume"]).all():
        values["volume"] = np.zeros(len(rows))
    missing = {role: np.isnan(column) for role, column in values.items()}
    empty = np.all([missing[role] for role in PRICES], axis=0)
    partly = np.any(list(missing.values()), axis=0) & ~empty
    dropped = empty | partly if settings.dropna == "any" else empty
    if partly.any() and settings.dropna == "all":
        row = int(partly.argmax())
        role = next(role for role in missing if missing[role][row])
        raise ConfigurationError(
            f"{path}, line {rows.index[row]}: {role} is missing, not a positive number: fix or remove the line, or set"
            " price_format: {dropna: any} to drop such lines."
        )
    if dropped.any():
        rank_zero_warn(
            f"{path}: {dropped.sum()} of {len(rows)} rows have no prices (dividends, splits, holidays) and are dropped,"
            f" the first in line {rows.index[dropped.argmax()]}."
        )
    return ~dropped


def _check_values(
    values: dict[str, Numbers], written: dict[str, "pandas.Series"], lines: NDArray[np.int64], path: Path, slack: float
) -> None:
    """Refuse values that are not positive, and bars whose high and low do not enclose the others by more than `slack`.

    High and low are then widened to enclose them, which removes a vendor's rounding.
    """
    for role, column in values.items():
        bad = ~np.isfinite(column) | (column < 0) | ((column == 0) & (role != "volume"))
        if bad.any():
            line = int(lines[bad.argmax()])
            raise ConfigurationError(
                f"{path}, line {line}: {role} is {written[role].loc[line]!r}, not a positive number: fix or remove the"
                " line."
            )
    top, bottom = np.maximum(values["open"], values["close"]), np.minimum(values["open"], values["close"])
    outside = (values["high"] < top * (1 - slack)) | (values["low"] > bottom * (1 + slack))
    if outside.any():
        row = int(outside.argmax())
        bar = ", ".join(f"{role} {values[role][row]:g}" for role in PRICES)
        unnamed = "; the file has no header, and is read as time, open, high, low, close: set price_format: {columns:"
        unnamed += " {open: 1, high: 2, low: 3, close: 4}} with the right positions"
        raise ConfigurationError(
            f"{path}, line {lines[row]}: high and low do not enclose open and close ({bar}): fix or remove the"
            f" line{'' if slack else unnamed}."
        )
    values["high"], values["low"] = np.maximum(values["high"], top), np.minimum(values["low"], bottom)


def _adjusted(values: dict[str, Numbers]) -> dict[str, Numbers]:
    """Return the prices times the factor of each bar's adjusted close, and the volume."""
    factor = values.get("adjusted", values["close"]) / values["close"]
    return {role: values[role] * factor for role in PRICES} | {"volume": values["volume"]}


def _ordered(
    symbol: str,
    times: Times,
    values: dict[str, Numbers],
    lines: NDArray[np.int64],
    path: Path,
    allowed: set[date] | str,
) -> Dated:
    """Return bars in ascending order of time, checked for order, gaps and jumps."""
    written = times.written.to_numpy("datetime64[s]")
    instant = written if times.instant is None else times.instant.to_numpy("datetime64[s]")
    if instant[0] > instant[-1]:
        written, instant, lines = written[::-1], instant[::-1], lines[::-1]
        values = {role: column[::-1].copy() for role, column in values.items()}
    _check_order(instant, lines, path)
    if allowed != "all":
        _check_jumps(values, written, lines, path, allowed)
    return Dated(Prices(symbol, written, **values), None if times.instant is None else instant)


def _days(real_jumps: RealJumps) -> set[date] | str:
    """Return the days of `real_jumps`, or `all`."""
    if real_jumps == "all":
        return "all"
    try:
        return {date.fromisoformat(str(day)) for day in ([real_jumps] if isinstance(real_jumps, str) else real_jumps)}
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"real_jumps is {real_jumps!r}: give days such as ['2020-03-16'], or all.") from error


def _check_order(instant: NDArray[np.datetime64], lines: NDArray[np.int64], path: Path) -> None:
    """Refuse a bar that is not later than the one before it, or later by more than holidays explain."""
    seconds = np.diff(instant).astype(np.int64)
    silence = max((MAX_GAP_DAYS + 1) * 86_400, MAX_GAP_BARS * float(np.median(seconds)))
    bad = (seconds <= 0) | (seconds >= silence)
    if not bad.any():
        return
    row = int(bad.argmax())
    where, before = f"{path}, line {lines[row + 1]}", lines[row]
    if seconds[row] == 0:
        raise ConfigurationError(f"{where} repeats the time of line {before}, {instant[row]}: remove one of them.")
    if seconds[row] < 0:
        raise ConfigurationError(f"{where} goes back in time after line {before}: sort the file by time.")
    raise ConfigurationError(
        f"{where} comes {seconds[row] // 86_400} days after line {before}: fill the gap, or cut the file."
    )


def _check_jumps(
    values: dict[str, Numbers],
    written: NDArray[np.datetime64],
    lines: NDArray[np.int64],
    path: Path,
    allowed: set[date] | str,
) -> None:
    """Refuse a bar whose price jumps like a split."""
    changes = (
        (OVERNIGHT, values["open"][1:] / values["close"][:-1], "opens at {:.3g} times the close before it"),
        (WITHIN, values["close"][1:] / values["open"][1:], "closes at {:.3g} times its open"),
    )
    jumps = [~((1 / limit < factor) & (factor < limit)) for limit, factor, _ in changes]
    for row in np.flatnonzero(jumps[0] | jumps[1]).tolist():
        day = written[row + 1].astype("datetime64[D]").item()
        if day in allowed:
            continue
        _, factor, text = changes[0 if jumps[0][row] else 1]
        raise ConfigurationError(
            f"{path}, line {lines[row + 1]} {text.format(factor[row])}, like a split: use split-adjusted prices, or add"
            f" an adj_close column; if the price itself jumped, set real_jumps: ['{day}'] (or all) in env_kwargs."
        )


def trailing(values: Numbers, length: int) -> Numbers:
    """Return windows `[bars, length]` that end at each bar; before the first bar its value is repeated."""
    return sliding_window_view(np.concatenate([np.full(length - 1, values[0]), values]), length)
