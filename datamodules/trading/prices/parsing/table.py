"""Read the cells of a CSV or Parquet file with pandas; the index of the cells holds their line numbers."""

import csv
import zlib
from lzma import LZMAError
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.tensor_files import first_line
from datamodules.trading.prices.parsing.price_format import PriceFormat

if TYPE_CHECKING:
    import pandas

SEPARATORS = ("\t", ";", "|", ",")
"""Separators of columns in the order in which they are tried: the first one that makes five columns is used."""

FEWEST = 5
"""Columns of the smallest price file: time, open, high, low, close."""

PEEKED = 50
"""Lines in which the first line of the table is sought; those before it are a preamble."""

TEXT, COMPRESSED, PARQUET = (".csv", ".tsv", ".txt"), ("", ".gz", ".zip", ".bz2", ".xz"), (".parquet",)
SUFFIXES = tuple(text + packed for text in TEXT for packed in COMPRESSED) + PARQUET + (".zip",)
"""Suffixes of price files, in lower or upper case; `.zip` holds one of the others."""


class Table(NamedTuple):
    """Cells `[lines, columns]` of a file as text, with their line numbers as index and positions as columns.

    The first lines are the header, if there is one. Parquet files have rows from 1 on, and names of columns as lines
    up to 0.
    """

    cells: "pandas.DataFrame"
    separator: str


def read_table(path: Path, settings: PriceFormat) -> Table:
    """Read the cells of a file.

    Raises: ConfigurationError if pandas is not installed, or the file cannot be read.
    """
    try:
        import pandas  # optional dependency, and slow to import
    except ImportError as error:
        raise ConfigurationError(f"Reading {path} needs pandas: pip install -e '.[trading]'.") from error
    if path.suffix.lower() in PARQUET:
        return Table(_parquet(path), ",")
    try:
        return _text(path, settings, settings.encoding or "utf-8-sig")
    except UnicodeDecodeError as error:
        if settings.encoding is None and error.object[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return _text(path, settings, "utf-16")
        raise ConfigurationError(
            f"{path} is not a text table ({error}): save it as CSV in UTF-8, or set price_format: {{encoding: cp1252}}."
        ) from error
    except pandas.errors.ParserError as error:
        reason = str(error).strip().removeprefix("Error tokenizing data. C error: ")
        raise ConfigurationError(
            f"{path} is not a text table ({reason}): fix the line, or set price_format: {{sep: ';'}}."
        ) from error
    except (EOFError, zlib.error, LZMAError, BadZipFile, OSError) as error:
        raise ConfigurationError(f"{path} is damaged, or cannot be read ({error}): download it again.") from error
    except ConfigurationError:
        raise
    except (ValueError, LookupError) as error:  # several files in a zip archive, an unknown encoding
        raise ConfigurationError(f"{path} cannot be read: {first_line(error)}.") from error


def _text(path: Path, settings: PriceFormat, encoding: str) -> Table:
    """Read the lines of a text file from the first line of its table on."""
    import pandas

    raw: dict[str, Any] = {"header": None, "dtype": str, "na_filter": False, "skip_blank_lines": False}
    raw |= {"index_col": False, "encoding": encoding}
    peeked = pandas.read_csv(path, sep="\x1f", names=[0], nrows=PEEKED, quoting=csv.QUOTE_NONE, **raw)[0].tolist()
    separator, start = (settings.sep, _first(peeked, settings.sep)) if settings.sep else _separator(peeked, path)
    width = max((_width(line, separator) for line in peeked[start:]), default=1) + 1
    cells = pandas.read_csv(path, sep=separator, names=range(width), skiprows=start, **raw)
    cells.index = cells.index + start + 1
    return Table(cells.apply(lambda column: column.str.strip()), separator)


def _width(line: str, separator: str) -> int:
    return len(line.split()) if separator == r"\s+" else line.count(separator) + 1


def _first(lines: list[str], separator: str) -> int:
    """Return the index of the first line that has enough columns; 0 if there is none."""
    return next((index for index, line in enumerate(lines) if _width(line, separator) >= FEWEST), 0)


def _separator(lines: list[str], path: Path) -> tuple[str, int]:
    """Return the separator of a text file and the index of the first line of its table."""
    for index, line in enumerate(lines):
        for separator in SEPARATORS:
            if _width(line, separator) >= FEWEST:
                return separator, index
    start = _first(lines, r"\s+")
    if lines and _width(lines[start], r"\s+") >= FEWEST:
        return r"\s+", start
    raise ConfigurationError(
        f"{path} must begin with names of columns and commas between: date,open,high,low,close. Line 1 is"
        f" {(lines or [''])[0][:60]!r}; another separator is set by price_format: {{sep: ':'}}."
    )


def _parquet(path: Path) -> "pandas.DataFrame":
    """Read a Parquet file; its index and levels of column names become cells."""
    import pandas

    try:
        frame = pandas.read_parquet(path)
    except ImportError as error:
        raise ConfigurationError(
            f"Reading {path} needs pyarrow: pip install -e '.[trading]', or give a CSV file."
        ) from error
    except Exception as error:  # a damaged file can make Arrow raise anything
        raise ConfigurationError(
            f"{path} is damaged, or not a Parquet file ({first_line(error)}): download it again."
        ) from error
    if not isinstance(frame.index, pandas.RangeIndex):
        frame = frame.reset_index()
    header = [[str(cell) for cell in (name if isinstance(name, tuple) else (name,))] for name in frame.columns]
    frame.columns, frame.index = range(frame.shape[1]), range(1, len(frame) + 1)
    levels = pandas.DataFrame(list(zip(*header, strict=True)), columns=frame.columns)
    levels.index = range(1 - len(levels), 1)
    return pandas.concat([levels, frame.astype("str").fillna("")])
