"""Read bars of one symbol from a CSV or Parquet file, find columns by name and check every line."""

import csv
import gzip
import statistics
import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.tensor_files import first_line
from datamodules.trading.prices.price_columns import find_columns

Numbers = NDArray[np.float64]

SUFFIXES = (".csv", ".csv.gz", ".parquet")
"""Suffixes of price files, in lower or upper case."""

FORMATS = ("%m/%d/%Y", "%Y%m%d", "%Y/%m/%d", "%Y.%m.%d")
"""Date formats other than ISO 8601."""

EPOCH_UNITS = {10: 1, 13: 10**3, 16: 10**6, 19: 10**9}
"""Units per second by the number of digits of an epoch time since 1970: from 2001 to 2286."""

MAX_GAP_DAYS, MAX_GAP_BARS = 14, 3
"""Longest gap between two bars that holidays explain: in days, and in multiples of the usual interval."""

OVERNIGHT, WITHIN = 1.18, 1.8
"""Factors between a close and the next open, and between the open and close of one bar, above which a price change is
taken for an unadjusted split: 5 for 4 is 1.25, and a day may add 5 %; a split within a weekly bar is at least 2 for 1.
"""

TIMES = ("time", "clock")
"""Columns that are not numbers: the time of a bar, or its date and its time of day."""

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


class Line(NamedTuple):
    """Parsed bar: position, the instant (UTC if the file has time zones), the time as written, numbers."""

    number: int
    instant: datetime
    written: datetime
    values: dict[str, float]


def symbol_of(path: Path) -> str:
    """Return the symbol that a file is named after: its name without `.csv`, `.csv.gz` or `.parquet`."""
    suffixes = [suffix for suffix in SUFFIXES if path.name.lower().endswith(suffix)]
    return path.name[: -max(map(len, suffixes))] if suffixes else path.name


def read_prices(path: str | Path, symbol: str | None = None, real_jumps: RealJumps = ()) -> Prices:
    """Return the bars of `read_dated`, without their instants. Args and Raises: as there."""
    return read_dated(path, symbol, real_jumps).prices


def read_dated(path: str | Path, symbol: str | None = None, real_jumps: RealJumps = ()) -> Dated:
    """Read `.csv`, `.csv.gz` or `.parquet`; files in descending order of time are reversed.

    Warns about columns that are not used (`datamodules.trading.prices.price_columns.find_columns`).

    Args:
        symbol: name of the symbol; the file's name by default.
        real_jumps: days with genuine price jumps, such as 2020-03-16, or `all`; a jump on another day is taken for an
            unadjusted split.

    Raises:
        ConfigurationError: with file and line, for a file that is not a table, a missing column, a value that is not a
            positive number, a high below or a low above the other prices, times that repeat, decrease, have a gap of
            more than 14 days (three usual intervals, if longer) or only partly have a time zone, and jumps that look
            like a split.
    """
    path, allowed = Path(path), _days(real_jumps)
    if not path.is_file():
        raise ConfigurationError(
            f"There is no price file {path}: give a CSV or Parquet file with date, open, high, low, close."
        )
    try:
        (_, header), *rows = list(_parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)) or [(0, ())]
    except (UnicodeDecodeError, csv.Error, gzip.BadGzipFile) as error:
        raise ConfigurationError(f"{path} is not a text table ({error}): save it as CSV in UTF-8.") from error
    except (EOFError, zlib.error, OSError) as error:
        raise ConfigurationError(f"{path} is damaged, or cannot be read ({error}): download it again.") from error
    columns = find_columns(header, path)
    lines = [_line(number, row, columns, path) for number, row in rows if any(str(cell).strip() for cell in row)]
    if len(lines) < 2:
        raise ConfigurationError(f"{path} holds {len(lines)} bars, too few to trade.")
    for line in lines:
        if (line.instant.tzinfo is None) != (lines[0].instant.tzinfo is None):
            raise ConfigurationError(f"{path}, line {line.number}: some times have a time zone and others none.")
    if lines[0].instant > lines[-1].instant:
        lines.reverse()
    seconds = statistics.median((later.instant - earlier.instant).total_seconds() for earlier, later in pairwise(lines))
    silence = max(timedelta(MAX_GAP_DAYS + 1), timedelta(seconds=MAX_GAP_BARS * seconds))
    for earlier, later in pairwise(lines):
        _check_order(earlier, later, path, silence)
        if allowed != "all" and later.written.date() not in allowed:
            _check_jump(earlier, later, path)
    column = {name: np.array([line.values[name] for line in lines]) for name in lines[0].values}
    clock, instant = (
        np.array([moment.replace(tzinfo=None) for moment in moments], dtype="datetime64[s]")
        for moments in zip(*((line.written, line.instant) for line in lines), strict=True)
    )
    return Dated(Prices(symbol or symbol_of(path), clock, **column), instant if lines[0].instant.tzinfo else None)


def _csv(path: Path) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield line numbers and cells of a CSV file."""
    if path.name.lower().endswith(".gz"):
        with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            yield from ((reader.line_num, row) for row in reader)
    else:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            yield from ((reader.line_num, row) for row in reader)


def _parquet(path: Path) -> Iterator[tuple[int, Sequence[Any]]]:
    """Yield row numbers and cells of a Parquet file, with the column names as row 0."""
    try:
        import pyarrow.parquet  # optional dependency, and slow to import
    except ImportError as error:
        raise ConfigurationError(
            f"Reading {path} needs pyarrow: pip install -e '.[trading]', or give a CSV file."
        ) from error
    try:
        table = pyarrow.parquet.read_table(path)
    except Exception as error:  # a damaged file can make Arrow raise anything
        raise ConfigurationError(
            f"{path} is damaged, or not a Parquet file ({first_line(error)}): download it again."
        ) from error
    yield 0, table.column_names
    yield from enumerate(zip(*(column.to_pylist() for column in table.columns), strict=True), start=1)


def _line(number: int, row: Sequence[Any], columns: dict[str, int], path: Path) -> Line:
    """Parse, check and adjust one bar."""
    where = f"{path}, line {number}"
    if len(row) <= max(columns.values()):
        raise ConfigurationError(f"{where} has {len(row)} columns, too few.")
    values = {name: _number(row[place], name, where) for name, place in columns.items() if name not in TIMES}
    top, bottom = max(values["open"], values["close"]), min(values["open"], values["close"])
    if values["high"] < top * (1 - 1e-3) or values["low"] > bottom * (1 + 1e-3):
        raise ConfigurationError(
            f"{where}: high and low do not enclose open and close ({values}): fix or remove the line."
        )
    values["high"], values["low"] = max(values["high"], top), min(values["low"], bottom)  # rounding of the vendor
    factor = values.pop("adjusted", values["close"]) / values["close"]
    values |= {name: values[name] * factor for name in ("open", "high", "low", "close")}
    values.setdefault("volume", 0.0)
    written = _time(row[columns["time"]], row[columns["clock"]] if "clock" in columns else None, where)
    instant = written if written.tzinfo is None else written.astimezone(UTC)
    return Line(number, instant, written, values)


def _number(cell: Any, name: str, where: str) -> float:
    try:
        value = float(cell)
    except (TypeError, ValueError):
        value = float("nan")
    if not np.isfinite(value) or value < 0 or (value == 0 and name != "volume"):
        raise ConfigurationError(f"{where}: {name} is {cell!r}, not a positive number: fix or remove the line.")
    return value


def _time(cell: Any, clock: Any, where: str) -> datetime:
    """Parse the time of a bar, from a cell or from those of its date and its time of day."""
    if isinstance(cell, date) and not isinstance(cell, datetime):
        cell = datetime(cell.year, cell.month, cell.day)
    if isinstance(cell, datetime):
        cell = cell if clock is None else cell.date().isoformat()
    moment = cell if isinstance(cell, datetime) else _parsed(f"{cell} {clock or ''}".strip())
    if moment is None:
        raise ConfigurationError(
            f"{where}: {str(cell if clock is None else f'{cell} {clock}')!r} is not a date: write it as 2020-12-31,"
            " with a time if bars are shorter."
        )
    return moment


def _parsed(text: str) -> datetime | None:
    """Parse a time in ISO 8601, one of `FORMATS` or a number of `EPOCH_UNITS` since 1970; else return None."""
    if text.isdecimal() and len(text) in EPOCH_UNITS:
        return datetime.fromtimestamp(int(text) / EPOCH_UNITS[len(text)], UTC)
    day, _, clock = text.partition(" ")
    if day.isdecimal() and len(day) != len("20201231"):
        return None
    clock = f"0{clock}" if clock[1:2] == ":" else clock
    for pattern in (None, *FORMATS):
        try:
            if pattern is None:
                return datetime.fromisoformat(f"{day} {clock}".strip())
            return datetime.combine(datetime.strptime(day, pattern), time.fromisoformat(clock or "00:00"))
        except ValueError:
            continue
    return None


def _days(real_jumps: RealJumps) -> set[date] | str:
    """Return the days of `real_jumps`, or `all`."""
    if real_jumps == "all":
        return "all"
    try:
        return {date.fromisoformat(str(day)) for day in ([real_jumps] if isinstance(real_jumps, str) else real_jumps)}
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"real_jumps is {real_jumps!r}: give days such as ['2020-03-16'], or all.") from error


def _check_order(earlier: Line, later: Line, path: Path, silence: timedelta) -> None:
    """Refuse a bar that is not later than the one before it, or later by more than `silence`."""
    where = f"{path}, line {later.number}"
    if later.instant == earlier.instant:
        raise ConfigurationError(
            f"{where} repeats the time of line {earlier.number}, {later.instant}: remove one of them."
        )
    if later.instant < earlier.instant:
        raise ConfigurationError(f"{where} goes back in time after line {earlier.number}: sort the file by time.")
    if later.instant - earlier.instant >= silence:
        days = (later.instant - earlier.instant).days
        raise ConfigurationError(
            f"{where} comes {days} days after line {earlier.number}: fill the gap, or cut the file."
        )


def _check_jump(earlier: Line, later: Line, path: Path) -> None:
    """Refuse a bar whose price jumps like a split."""
    changes = (
        (OVERNIGHT, later.values["open"] / earlier.values["close"], "opens at {:.3g} times the close before it"),
        (WITHIN, later.values["close"] / later.values["open"], "closes at {:.3g} times its open"),
    )
    for limit, factor, text in changes:
        if not 1 / limit < factor < limit:
            raise ConfigurationError(
                f"{path}, line {later.number} {text.format(factor)}, like a split: use split-adjusted prices, or add"
                f" an adj_close column; if the price itself jumped, set real_jumps: ['{later.written.date()}'] (or"
                " all) in env_kwargs."
            )


def trailing(values: Numbers, length: int) -> Numbers:
    """Return windows `[bars, length]` that end at each bar; before the first bar its value is repeated."""
    return sliding_window_view(np.concatenate([np.full(length - 1, values[0]), values]), length)
