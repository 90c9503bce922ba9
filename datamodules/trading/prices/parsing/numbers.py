"""Parse the numbers of a price file: decimal points and commas, thousands, currencies, missing values."""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from datamodules.core.errors import ConfigurationError
from datamodules.trading.prices.parsing.price_format import PriceFormat

if TYPE_CHECKING:
    import pandas

MISSING = ("", "-", "--", ".", "nan", "null", "none", "n/a", "na", "#n/a", "nat", "<na>")
"""Cells without a value, in lower case."""

EVENT = r"(?i)dividend|split|distribution"
"""Text in the price cells of a row that reports an event instead of a bar."""

GROUPING = " '\u2019_\u00a0\u202f\u2009"
"""Characters that only separate thousands."""

SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
"""Multiples that follow a volume."""

PRICES = ("open", "high", "low", "close")


def parse_numbers(
    columns: Mapping[str, "pandas.Series"], path: Path, settings: PriceFormat, separator: str
) -> dict[str, NDArray[np.float64]]:
    """Return the numbers `[bars]` of columns of text; NaN where a value is missing.

    Args:
        columns: text by name, with lines as index.
        separator: separator of the columns; with a semicolon, points may separate thousands.

    Raises: ConfigurationError for a cell that is not a number, and for numbers that can be read in two ways.
    """
    if settings.decimal is None and settings.thousands is None and separator != ";":
        with suppress(ValueError):
            return {
                name: column.mask(column == "", "nan").to_numpy(object).astype(float)
                for name, column in columns.items()
            }
    plain = {name: _bare(column, name) for name, column in columns.items()}
    decimal = _decimal(plain, path, settings, separator)
    return {name: _parsed(plain[name], columns[name], name, decimal, path) for name in columns}


def _bare(column: "pandas.Series", name: str) -> "pandas.Series":
    """Return cells without currency and the separators of thousands that are nothing else; empty if missing."""
    text = column.str.replace(
        r"^([+-]?)\s*[$\u20ac\u00a3\u00a5\u20b9]\s*|\s*[$\u20ac\u00a3\u00a5\u20b9]$", r"\1", regex=True
    )
    text = text.str.replace(rf"(?<=\d)[{GROUPING}](?=\d{{3}}(?!\d))", "", regex=True)
    return text.mask(text.str.lower().isin(MISSING) | ((name != "volume") & text.str.contains(EVENT)), "")


def _decimal(plain: Mapping[str, "pandas.Series"], path: Path, settings: PriceFormat, separator: str) -> str:
    """Return the decimal point of a file, from all of its numbers.

    Raises: ConfigurationError if numbers contradict one another, or can be read with either.
    """
    if settings.decimal is not None:
        return settings.decimal
    if settings.thousands in (".", ","):
        return "," if settings.thousands == "." else "."
    commas = any(column.str.contains(",", regex=False).any() for column in plain.values())
    if not commas and separator != ";":
        return "."
    evidence: dict[str, tuple[int, str]] = {}
    doubtful: tuple[int, str] | None = None
    for column in plain.values():
        for decimal, other in ((".", ","), (",", ".")):
            if (cell := _first(column, _proof(decimal, other))) is not None:
                evidence.setdefault(decimal, cell)
            if doubtful is None and (decimal == "," or separator == ";"):
                doubtful = _first(column, rf"[+-]?[1-9]\d{{0,2}}{re.escape(decimal)}\d{{3}}[kmbtKMBT]?")
    if len(evidence) == 2:
        (line, text), (point_line, point) = evidence[","], evidence["."]
        raise ConfigurationError(
            f"{path}, line {max(line, point_line)}: {text!r} in line {line} has a decimal comma, and {point!r} in line"
            f" {point_line} a decimal point: write all alike, or set price_format: {{decimal: '.'}}."
        )
    if not evidence and doubtful is not None:
        line, text = doubtful
        raise ConfigurationError(
            f"{path}, line {line}: {text!r} is {re.sub('[.,]', '', text)}, or has three decimals, and no number of the"
            " file decides: set price_format: {decimal: ','} or {decimal: '.'}."
        )
    return next(iter(evidence), ".")


def _proof(decimal: str, other: str) -> str:
    """Return the pattern of numbers that can only be read with this decimal point."""
    point, group = re.escape(decimal), re.escape(other)
    return (
        rf"[+-]?(?:\d*{point}(?:\d{{1,2}}|\d{{4,}})?(?:[eE][+-]?\d+)?"  # not three digits after it
        rf"|(?:0|\d{{4,}})?{point}\d+(?:[eE][+-]?\d+)?"  # 0 or more than three before it
        rf"|\d+{point}\d+[eE][+-]?\d+"
        rf"|\d{{1,3}}(?:{group}\d{{2,3}})+{point}\d*"  # after thousands
        rf"|\d{{1,3}}(?:{group}\d{{2,3}}){{2,}})[kmbtKMBT]?"  # several thousands
    )


def _first(column: "pandas.Series", pattern: str) -> tuple[int, str] | None:
    """Return line and text of the first cell of a pattern."""
    matches = column.str.fullmatch(pattern).to_numpy(bool)
    return (int(column.index[matches.argmax()]), str(column.iloc[matches.argmax()])) if matches.any() else None


def _parsed(
    text: "pandas.Series", written: "pandas.Series", name: str, decimal: str, path: Path
) -> NDArray[np.float64]:
    """Return the numbers of a column."""
    other = "," if decimal == "." else "."
    if text.str.contains(other, regex=False).any():
        grouped = text.str.fullmatch(
            rf"[+-]?\d{{1,3}}(?:{re.escape(other)}\d{{2,3}})*{re.escape(other)}\d{{3}}(?:\D.*)?"
        )
        text = text.mask(grouped, text.str.replace(other, "", regex=False))
    if decimal == ",":
        text = text.mask(~text.str.contains(".", regex=False), text.str.replace(",", ".", regex=False))
    scale: NDArray[np.float64] | float = 1.0
    if name == "volume":
        multiple = text.str.extract(r"^[+-]?[\d.]+\s*([kmbtKMBT])$")[0].str.lower()
        if multiple.notna().any():
            scale = multiple.map(SUFFIXES).fillna(1.0).to_numpy(float)
            text = text.mask(multiple.notna(), text.str[:-1].str.strip())
    cells = text.mask(text == "", "nan").to_numpy(object)
    try:
        values = cells.astype(np.float64)  # by Python's float, to the last bit
    except ValueError:
        bad = next(place for place, cell in enumerate(cells) if not _is_number(cell))
        raise ConfigurationError(
            f"{path}, line {text.index[bad]}: {name} is {str(written.iloc[bad])!r}, not a positive number: fix or"
            " remove the line; a decimal comma is set by price_format: {decimal: ','}."
        ) from None
    return values * scale


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
