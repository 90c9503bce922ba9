"""Bars of one symbol from a CSV or Parquet file: columns found by name, every line checked."""

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

from datamodules.core.errors import UsageError
from datamodules.core.files.tensor_files import first_line
from datamodules.trading.prices.price_columns import find_columns

Numbers = NDArray[np.float64]

SUFFIXES = (".csv", ".csv.gz", ".parquet")
"""Of price files, in either case."""

FORMATS = ("%m/%d/%Y", "%Y%m%d", "%Y/%m/%d", "%Y.%m.%d")
"""Of dates that are not ISO 8601."""

EPOCH_UNITS = {10: 1, 13: 10**3, 16: 10**6, 19: 10**9}
"""Units in a second, by the digits of a number of them since 1970: from 2001 to 2286."""

MAX_GAP_DAYS, MAX_GAP_BARS = 14, 3
"""Longest silence between two bars that no holiday explains: so many days, and so many times the usual one."""

OVERNIGHT, WITHIN = 1.18, 1.8
"""Factors between a close and the next open, and between the open and close of one bar, from which a price change looks
like an unadjusted split: 5 for 4 is 1.25, and a day may add 5 %; a split amid a weekly bar is at least 2 for 1."""

TIMES = ("time", "clock")
"""Columns that hold no number: the time of a bar, or its date and its time of day."""

RealJumps = Sequence[str] | str
"""Days whose jumps are no splits, as 2020-03-16, or `all`."""


class Prices(NamedTuple):
    """Bars in order of time; every array is `[bars]`.

    time: on the clock of the file, datetime64[s].   open, high, low, close: positive, adjusted by one factor a bar
    where the file has adjusted closes.   volume: in any unit, zeros where unknown.
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
    """One bar as it was read: where, the instant (UTC if the file has time zones), the time as written, numbers."""

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
    """Read `.csv`, `.csv.gz` or `.parquet`; lines from last to first are turned around.

    Warns about columns that are not used (`datamodules.trading.prices.price_columns.find_columns`).

    Args:
        symbol: what to call it; the file's name unless given.
        real_jumps: days on which the price itself jumped, such as 2020-03-16, or `all`; a jump on another day is taken
            for an unadjusted split.

    Raises:
        UsageError: with file and line, for what is no table, a column that is missing, a value that is no positive
            number, a high below or a low above the others, times that repeat, go back, are silent for more than 14 days
            (three usual bars, if these are longer) or only partly carry a time zone, and jumps that look like a split.
    """
    path, allowed = Path(path), _days(real_jumps)
    if not path.is_file():
        raise UsageError(
            f"There is no price file {path}: give a CSV or Parquet file with date, open, high, low, close."
        )
    try:
        (_, header), *rows = list(_parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)) or [(0, ())]
    except (UnicodeDecodeError, csv.Error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path} is no table of text ({error}): save it as CSV in UTF-8.") from error
    except (EOFError, zlib.error, OSError) as error:
        raise UsageError(f"{path} is damaged, or cannot be read ({error}): fetch it again.") from error
    columns = find_columns(header, path)
    lines = [_line(number, row, columns, path) for number, row in rows if any(str(cell).strip() for cell in row)]
    if len(lines) < 2:
        raise UsageError(f"{path} holds {len(lines)} bars: that is nothing to trade on.")
    for line in lines:
        if (line.instant.tzinfo is None) != (lines[0].instant.tzinfo is None):
            raise UsageError(f"{path}, line {line.number}: some times have a time zone and others none.")
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
    """Line numbers and cells."""
    if path.name.lower().endswith(".gz"):
        with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            yield from ((reader.line_num, row) for row in reader)
    else:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            yield from ((reader.line_num, row) for row in reader)


def _parquet(path: Path) -> Iterator[tuple[int, Sequence[Any]]]:
    """Row numbers, the names as number 0, and cells."""
    try:
        import pyarrow.parquet  # an extra, and slow to import
    except ImportError as error:
        raise UsageError(f"Reading {path} needs pyarrow: pip install -e '.[trading]', or give a CSV file.") from error
    try:
        table = pyarrow.parquet.read_table(path)
    except Exception as error:  # a damaged file can make Arrow raise anything
        raise UsageError(f"{path} is damaged, or no Parquet file ({first_line(error)}): fetch it again.") from error
    yield 0, table.column_names
    yield from enumerate(zip(*(column.to_pylist() for column in table.columns), strict=True), start=1)


def _line(number: int, row: Sequence[Any], columns: dict[str, int], path: Path) -> Line:
    """One bar, checked by itself and adjusted."""
    where = f"{path}, line {number}"
    if len(row) <= max(columns.values()):
        raise UsageError(f"{where} has {len(row)} columns, too few.")
    values = {name: _number(row[place], name, where) for name, place in columns.items() if name not in TIMES}
    top, bottom = max(values["open"], values["close"]), min(values["open"], values["close"])
    if values["high"] < top * (1 - 1e-3) or values["low"] > bottom * (1 + 1e-3):
        raise UsageError(f"{where}: high and low do not enclose open and close ({values}): mend or remove the line.")
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
        raise UsageError(f"{where}: {name} is {cell!r}, not a positive number: mend or remove the line.")
    return value


def _time(cell: Any, clock: Any, where: str) -> datetime:
    """The time of a bar, from a cell or from those of its date and its time of day."""
    if isinstance(cell, date) and not isinstance(cell, datetime):
        cell = datetime(cell.year, cell.month, cell.day)
    if isinstance(cell, datetime):
        cell = cell if clock is None else cell.date().isoformat()
    moment = cell if isinstance(cell, datetime) else _parsed(f"{cell} {clock or ''}".strip())
    if moment is None:
        raise UsageError(
            f"{where}: {str(cell if clock is None else f'{cell} {clock}')!r} is no date: write it as 2020-12-31, with a"
            " time if bars are shorter."
        )
    return moment


def _parsed(text: str) -> datetime | None:
    """A time in ISO 8601, one of `FORMATS` or a number of `EPOCH_UNITS` since 1970; None if it is none of them."""
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
    """The days of `real_jumps`, or `all`."""
    if real_jumps == "all":
        return "all"
    try:
        return {date.fromisoformat(str(day)) for day in ([real_jumps] if isinstance(real_jumps, str) else real_jumps)}
    except (TypeError, ValueError) as error:
        raise UsageError(f"real_jumps is {real_jumps!r}: give days such as ['2020-03-16'], or all.") from error


def _check_order(earlier: Line, later: Line, path: Path, silence: timedelta) -> None:
    """Refuse a bar that does not follow the one before it, within less than `silence`."""
    where = f"{path}, line {later.number}"
    if later.instant == earlier.instant:
        raise UsageError(f"{where} repeats the time of line {earlier.number}, {later.instant}: remove one of them.")
    if later.instant < earlier.instant:
        raise UsageError(f"{where} goes back in time after line {earlier.number}: sort the file by time.")
    if later.instant - earlier.instant >= silence:
        days = (later.instant - earlier.instant).days
        raise UsageError(f"{where} comes {days} days after line {earlier.number}: fill the gap, or cut the file.")


def _check_jump(earlier: Line, later: Line, path: Path) -> None:
    """Refuse a bar whose price jumps as that of a split does."""
    changes = (
        (OVERNIGHT, later.values["open"] / earlier.values["close"], "opens at {:.3g} times the close before it"),
        (WITHIN, later.values["close"] / later.values["open"], "closes at {:.3g} times its open"),
    )
    for limit, factor, text in changes:
        if not 1 / limit < factor < limit:
            raise UsageError(
                f"{path}, line {later.number} {text.format(factor)}, like a split: use split-adjusted prices, or add"
                f" an adj_close column; if the price itself jumped, set real_jumps: ['{later.written.date()}'] (or"
                " all) in env_kwargs."
            )


def trailing(values: Numbers, length: int) -> Numbers:
    """Windows `[bars, length]` that end at each bar; before the first bar its value is repeated."""
    return sliding_window_view(np.concatenate([np.full(length - 1, values[0]), values]), length)
