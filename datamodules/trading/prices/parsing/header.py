"""Find the header of a table, and the rows and columns of one symbol."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lightning.pytorch.utilities import rank_zero_warn

from datamodules.core.errors import ConfigurationError
from datamodules.trading.prices.parsing.columns import NAMES, SYMBOL, UNNAMED, normalised
from datamodules.trading.prices.parsing.price_format import PriceFormat
from datamodules.trading.prices.parsing.table import FEWEST

if TYPE_CHECKING:
    import pandas

BARE = ("open", "high", "low", "close", "volume")
"""Columns of a file without a header, in order, after those of date and time."""

NUMBER = re.compile(r"[^A-Za-z]*\d[^A-Za-z]*")
CLOCK = re.compile(r"\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?")


class Content(NamedTuple):
    """Rows of a file without its header.

    header: name of each column.   line: line of the names.   named: whether the file has names.   cells: text
    `[bars, columns]`, with lines as index.   symbols: the symbols of the rows, or of the columns; empty if unknown.
    by_column: position of the column of symbols; None if columns belong to symbols.   tickers: symbol of each column.
    """

    header: list[str]
    line: int
    named: bool
    cells: "pandas.DataFrame"
    symbols: list[str]
    by_column: int | None
    tickers: list[str]


def find_content(cells: "pandas.DataFrame", settings: PriceFormat, path: Path) -> Content:
    """Separate the header from the rows, and find which symbols they hold.

    The header has one row of names, or several: names above symbols above the name of the index, or symbols first.

    Raises: ConfigurationError for rows that have more cells than the header.
    """
    top = [list(map(str, row)) for row in cells.head(4).itertuples(index=False)]
    names = next((k for k, row in enumerate(top[:3]) if {"open", "high", "low"} <= _roles(row)), None)
    if names is None and top and _is_bar(top[0]):
        header = _bare_header(top[0])
        return _with_symbols(Content(header, int(cells.index[0]), False, cells, [], None, []), settings, path)
    names = names or 0
    header, start, tickers = top[names] if top else [], names + 1, list[str]()
    if names and _are_tickers(top[names - 1]):
        tickers = top[names - 1]
    elif len(top) > start and _are_tickers(top[start]):
        tickers, start = top[start], start + 1
    if len(top) > start and normalised(top[start][0]) in NAMES["time"] and not any(top[start][1:]):
        header, start = [top[start][0], *header[1:]], start + 1
    line = int(cells.index[names]) if top else 1
    content = Content(header, line, True, cells.iloc[start:], [], None, tickers)
    return _with_symbols(_without_repeats(_within_header(content, settings, path), path), settings, path)


def select_symbol(content: Content, symbol: str, path: Path, *, given: bool) -> Content:
    """Return the rows and columns of one symbol; those of all if the file holds one symbol or names none.

    Args:
        given: whether the symbol was asked for, or is the file's name.

    Raises: ConfigurationError if the file holds several symbols, and not this one.
    """
    if len(content.symbols) < 2:
        known = normalised("".join(content.symbols))
        if given and known and known not in normalised(symbol) and normalised(symbol) not in known:
            rank_zero_warn(f"{path} holds prices of {content.symbols[0]}, which are used for {symbol}.")
        return content
    matching = [each for each in content.symbols if each == symbol]
    matching = matching or [each for each in content.symbols if normalised(each) == normalised(symbol)]
    if len(matching) != 1:
        held = ", ".join(content.symbols[:8]) + (", ..." if len(content.symbols) > 8 else "")
        raise ConfigurationError(
            f"{path}, line {content.cells.index[0]}: the file holds {len(content.symbols)} symbols, {held}, and not"
            f" {symbol}: set symbol to one of them, or to all."
        )
    if content.by_column is not None:
        rows = content.cells[content.by_column] == matching[0]
        return content._replace(cells=content.cells[rows], symbols=matching)
    keep = [place for place, each in enumerate(content.tickers) if place == 0 or each == matching[0]]
    cells = content.cells[keep].set_axis(range(len(keep)), axis=1)
    return content._replace(header=[content.header[place] for place in keep], cells=cells, symbols=matching)


def _roles(row: Sequence[str]) -> set[str]:
    """Return the roles that cells have as names of columns."""
    return {role for role, names in NAMES.items() for cell in row if normalised(cell) in names}


def _is_bar(row: Sequence[str]) -> bool:
    """Return whether cells look like a bar: at least four of them are numbers."""
    return sum(NUMBER.fullmatch(cell) is not None for cell in row[1:]) >= FEWEST - 1


def _bare_header(row: Sequence[str]) -> list[str]:
    """Return the names of the columns of a file without a header."""
    names = [*(("date", "time") if CLOCK.fullmatch(row[1]) else ("date",)), *BARE]
    return [names[place] if place < len(names) else "" for place in range(len(row))]


def _are_tickers(row: Sequence[str]) -> bool:
    """Return whether cells are the symbols of columns."""
    filled = [cell for cell in row[1:] if cell]
    first = normalised(row[0])
    return (
        first in (*UNNAMED, "ticker", "tickers", "symbol", "symbols", *NAMES["time"])
        and len(filled) >= FEWEST - 1
        and all(re.search("[A-Za-z]", cell) for cell in filled)
        and not re.search(r"\d", row[0])
        and len(_roles(row[1:])) < 2
    )


def _within_header(content: Content, settings: PriceFormat, path: Path) -> Content:
    """Return the content without empty columns beyond the header; refuse rows with cells there."""
    width = max((place + 1 for place, name in enumerate(content.header) if name), default=0)
    by_position = settings.columns and all(isinstance(name, int) for name in settings.columns.values())
    beyond = content.cells.iloc[:, width:]
    filled = (beyond != "").any(axis=1)
    if filled.any() and not by_position:
        line = content.cells.index[filled.argmax()]
        count = width + int((beyond.loc[line] != "").to_numpy().nonzero()[0][-1]) + 1
        raise ConfigurationError(
            f"{path}, line {line} has {count} cells, and the header in line {content.line} names {width}: fix them, or"
            " set price_format: {columns: {time: 0, open: 1, high: 2, low: 3, close: 4}} with the right positions."
        )
    keep = content.cells.shape[1] if by_position else width
    return content._replace(header=content.header[:keep], cells=content.cells.iloc[:, :keep])


def _without_repeats(content: Content, path: Path) -> Content:
    """Return the content without rows that repeat the names, as in files that were joined."""
    repeats = (content.cells == content.header).all(axis=1)
    if repeats.any():
        rank_zero_warn(
            f"{path}: {repeats.sum()} rows that repeat the header are dropped, the first in line"
            f" {content.cells.index[repeats.argmax()]}."
        )
    return content._replace(cells=content.cells[~repeats])


def _with_symbols(content: Content, settings: PriceFormat, path: Path) -> Content:
    """Return the content with its symbols."""
    if content.tickers:
        return content._replace(symbols=list(dict.fromkeys(each for each in content.tickers[1:] if each)))
    chosen = settings.columns.get("symbol")
    places = [place for name in SYMBOL for place, each in enumerate(content.header) if normalised(each) == name]
    if chosen is not None:
        places = [place for place, each in enumerate(content.header) if chosen in (place, each)]
        if not places:
            raise ConfigurationError(
                f"{path}, line {content.line} has no column {chosen!r}, only {', '.join(content.header)}: set"
                " price_format.columns.symbol to one of them."
            )
    several = {place: [each for each in content.cells[place].unique().tolist() if each] for place in places}
    place = next((place for place, symbols in several.items() if len(symbols) > 1), next(iter(several), None))
    if place is None or (normalised(content.header[place]) == "name" and len(several[place]) < 2):
        return content
    return content._replace(symbols=several[place], by_column=place)
