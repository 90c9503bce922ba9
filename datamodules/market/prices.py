"""Bars of one symbol from a CSV or Parquet file: columns found by name, every line checked."""

import csv
import gzip
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from datamodules.types import UsageError

Numbers = NDArray[np.float64]

NAMES = {
    "time": ("date", "datetime", "timestamp", "time", "day"),
    "open": ("open", "o"),
    "high": ("high", "h"),
    "low": ("low", "l"),
    "close": ("close", "c"),
    "volume": ("volume", "vol", "v"),
    "adjusted": ("adj close", "adj_close", "adjclose", "adjusted close", "adjusted_close"),
}
"""How columns are called, whatever their case."""

OPTIONAL = ("volume", "adjusted")
FORMATS = ("%m/%d/%Y", "%Y%m%d", "%Y/%m/%d")
"""Of dates that are not ISO 8601."""

MAX_GAP_DAYS = 14
"""Longest silence between two bars that no holiday explains."""

SPLIT = 1.45
"""Overnight factor from which a price change looks like an unadjusted split (3 for 2 is 1.5)."""


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


class Line(NamedTuple):
    """One bar as it was read: where, the instant (UTC if the file has time zones), the time as written, numbers."""

    number: int
    instant: datetime
    written: datetime
    values: dict[str, float]


def read_prices(path: str | Path, symbol: str | None = None) -> Prices:
    """Read `.csv`, `.csv.gz` or `.parquet`; lines from last to first are turned around.

    Args:
        symbol: what to call it; the file's name unless given.

    Raises:
        UsageError: with file and line, for what is no table, a column that is missing, a value that is no positive
            number, a high below or a low above the others, times that repeat, go back, are silent for more than 14 days
            or only partly carry a time zone, and jumps that look like a split.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError(
            f"There is no price file {path}: give a CSV or Parquet file with date, open, high, low, close."
        )
    try:
        (_, header), *rows = list(_parquet(path) if path.suffix == ".parquet" else _csv(path)) or [(0, ())]
    except (UnicodeDecodeError, csv.Error, gzip.BadGzipFile) as error:
        raise UsageError(f"{path} is no table of text ({error}): save it as CSV in UTF-8.") from error
    columns = _columns(header, path)
    lines = [_line(number, row, columns, path) for number, row in rows if any(str(cell).strip() for cell in row)]
    if len(lines) < 2:
        raise UsageError(f"{path} holds {len(lines)} bars: that is nothing to trade on.")
    for line in lines:
        if (line.instant.tzinfo is None) != (lines[0].instant.tzinfo is None):
            raise UsageError(f"{path}, line {line.number}: some times have a time zone and others none.")
    if lines[0].instant > lines[-1].instant:
        lines.reverse()
    for earlier, later in pairwise(lines):
        _check_order(earlier, later, path)
    column = {name: np.array([line.values[name] for line in lines]) for name in lines[0].values}
    time = np.array([line.written.replace(tzinfo=None) for line in lines], dtype="datetime64[s]")
    return Prices(symbol or path.name.split(".")[0], time, **column)


def _csv(path: Path) -> Iterator[tuple[int, Sequence[Any]]]:
    """Line numbers and cells."""
    if path.name.endswith(".gz"):
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
    table = pyarrow.parquet.read_table(path)
    yield 0, table.column_names
    yield from enumerate(zip(*(column.to_pylist() for column in table.columns), strict=True), start=1)


def _columns(header: Sequence[Any], path: Path) -> dict[str, int]:
    """Where each column stands."""
    found = [str(name).strip().lower() for name in header]
    if len(found) < 2:
        raise UsageError(f"{path} must begin with names of columns and commas between: date,open,high,low,close.")
    columns = {}
    for column, names in NAMES.items():
        places = [place for place, name in enumerate(found) if name in names]
        if len(places) > 1:
            raise UsageError(f"{path} has {len(places)} columns for {column}: leave one of {names}.")
        if places:
            columns[column] = places[0]
        elif column not in OPTIONAL:
            raise UsageError(f"{path} has no column for {column}, only {', '.join(found)}: name it {names[0]}.")
    return columns


def _line(number: int, row: Sequence[Any], columns: dict[str, int], path: Path) -> Line:
    """One bar, checked by itself and adjusted."""
    where = f"{path}, line {number}"
    if len(row) <= max(columns.values()):
        raise UsageError(f"{where} has {len(row)} columns, too few.")
    values = {name: _number(row[place], name, where) for name, place in columns.items() if name != "time"}
    top, bottom = max(values["open"], values["close"]), min(values["open"], values["close"])
    if values["high"] < top * (1 - 1e-3) or values["low"] > bottom * (1 + 1e-3):
        raise UsageError(f"{where}: high and low do not enclose open and close ({values}): mend or remove the line.")
    values["high"], values["low"] = max(values["high"], top), min(values["low"], bottom)  # rounding of the vendor
    factor = values.pop("adjusted", values["close"]) / values["close"]
    values |= {name: values[name] * factor for name in ("open", "high", "low", "close")}
    values.setdefault("volume", 0.0)
    written = _time(row[columns["time"]], where)
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


def _time(cell: Any, where: str) -> datetime:
    if isinstance(cell, date) and not isinstance(cell, datetime):
        return datetime(cell.year, cell.month, cell.day)
    moment = cell if isinstance(cell, datetime) else _parsed(str(cell).strip())
    if moment is None:
        raise UsageError(f"{where}: {cell!r} is no date: write it as 2020-12-31, with a time if bars are shorter.")
    return moment


def _parsed(text: str) -> datetime | None:
    for pattern in (None, *FORMATS):
        try:
            return datetime.fromisoformat(text) if pattern is None else datetime.strptime(text, pattern)
        except ValueError:
            continue
    return None


def _check_order(earlier: Line, later: Line, path: Path) -> None:
    """Refuse a bar that does not follow the one before it."""
    where = f"{path}, line {later.number}"
    if later.instant == earlier.instant:
        raise UsageError(f"{where} repeats the time of line {earlier.number}, {later.instant}: remove one of them.")
    if later.instant < earlier.instant:
        raise UsageError(f"{where} goes back in time after line {earlier.number}: sort the file by time.")
    silence = (later.instant - earlier.instant).days
    if silence > MAX_GAP_DAYS:
        raise UsageError(f"{where} comes {silence} days after line {earlier.number}: fill the gap, or cut the file.")
    jump = later.values["open"] / earlier.values["close"]
    if not 1 / SPLIT < jump < SPLIT:
        raise UsageError(
            f"{where} opens at {jump:.3g} times the close before it, like a split: use split-adjusted prices, or add"
            " an adj_close column."
        )


def trailing(values: Numbers, length: int) -> Numbers:
    """Windows `[bars, length]` that end at each bar; before the first bar its value is repeated."""
    return sliding_window_view(np.concatenate([np.full(length - 1, values[0]), values]), length)
