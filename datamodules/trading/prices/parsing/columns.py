"""Identify the columns of a price file; names are compared without case, spaces and punctuation."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_warn

from datamodules.core.errors import ConfigurationError

NAMES = {
    "time": (
        *("date", "datetime", "timestamp", "time", "day", "t", "ts", "dt", "gmttime", "localtime", "utctime"),
        *("datetimeutc", "dateutc", "timeutc", "tradedate", "tradingday", "datetimegmt", "begin", "bartime"),
    ),
    "open": ("open", "openprice", "priceopen", "o", "openingprice"),
    "high": ("high", "highprice", "pricehigh", "h"),
    "low": ("low", "lowprice", "pricelow", "l"),
    "close": ("close", "closeprice", "priceclose", "closelast", "c", "closingprice"),
    "adjusted": (
        *("adjclose", "adjustedclose", "closeadj", "closeadjusted", "adjclosed", "adjustedclosed"),
        *("adjcloseprice", "adjustedcloseprice", "adjprice", "adjustedprice", "adjusted", "adj"),
    ),
}
"""Accepted names of columns, normalised; a file must have one of each."""

FALLBACKS = {
    "time": ("unix", "unixtime", "unixtimestamp", "epoch", "opentime", "windowstart", "starttime", "timeperiodstart"),
    "close": ("price", "last", "lastprice", "settle", "settlement", "ltp"),
}
"""Names for a column that has none of `NAMES`: starts of bars, mostly as numbers since 1970, and last prices."""

UNNAMED = ("", "index", "level0", "unnamed", "price")
"""Names that libraries give to a first column of times whose index has no name."""

VOLUME = ("volume", "vol", "v", "tickvolume", "tickvol", "realvolume", "realvol", "volumetraded", "sharevolume")
"""Accepted names of a volume, in order of preference; then any name that begins or ends with `volume`."""

SYMBOL = ("symbol", "ticker", "tic", "instrument", "secid", "code", "asset", "stock", "pair", "name")
"""Names of a column of symbols: the rows of one are used if it holds several."""

IGNORED = ("", "index", "currency", "exchange", "interval", "per", *SYMBOL, *FALLBACKS["time"])
"""Columns ignored without a warning, and names that pandas gives to row numbers."""

OPTIONAL = ("adjusted",)


def normalised(name: object) -> str:
    """Return the letters and digits of a column's name in lower case, without leading digits: `5. Adj. Close`."""
    return re.sub(r"[\W_]+", "", str(name).lower()).lstrip("0123456789")


def find_columns(
    header: Sequence[object], path: Path, line: int = 1, chosen: Mapping[str, str | int] | None = None
) -> dict[str, int]:
    """Return the position of each column by role: time, clock (a time of day beside a date), open, high, low, ...

    Warns about every non-empty column that is not used, by name.

    Args:
        line: line of the header, for messages.
        chosen: name or position of columns by role (`PriceFormat.columns`).

    Raises: ConfigurationError for a missing column, and for several candidates for one.
    """
    found, where = [normalised(name) for name in header], f"{path}, line {line}"
    columns = {role: _chosen(role, name, header, where) for role, name in (chosen or {}).items()}
    taken = set(columns.values())
    for column, names in NAMES.items():
        if column in columns:
            continue
        places = _candidates(column, names, found, taken)
        if column == "time" and "clock" not in columns:
            places, clock = _times(places, found)
            columns |= clock
        if len(places) > 1:
            twice = ", ".join(str(header[place]).strip() for place in places)
            raise ConfigurationError(
                f"{where} has {len(places)} columns for {column} ({twice}): leave one of them, or set price_format:"
                f" {{columns: {{{column}: {str(header[places[0]]).strip()}}}}}."
            )
        if places:
            columns[column] = places[0]
        elif column not in OPTIONAL:
            has = ", ".join(str(name).strip() for name in header)
            raise ConfigurationError(
                f"{where} has no column for {column}, only {has}: name it {names[0]}, or set price_format: {{columns:"
                f" {{{column}: NAME}}}}."
            )
    if "volume" not in columns and (volume := _volume(found)) is not None:
        columns["volume"] = volume
    _warn_of_others(header, found, columns, path)
    return columns


def _candidates(column: str, names: Sequence[str], found: Sequence[str], taken: set[int]) -> list[int]:
    """Return the positions of the columns that may be this one."""
    for accepted in (names, FALLBACKS.get(column, ())):
        if places := [place for place, name in enumerate(found) if name in accepted and place not in taken]:
            return places
    return [0] if column == "time" and found and found[0] in UNNAMED and 0 not in taken else []


def _chosen(role: str, name: str | int, header: Sequence[object], where: str) -> int:
    """Return the position of a column given by name or position."""
    if isinstance(name, int) and 0 <= name < len(header):
        return name
    places = [place for place, each in enumerate(header) if str(each).strip() == str(name).strip()]
    if len(places) != 1:
        raise ConfigurationError(
            f"{where} has {len(places)} columns {name!r}, of {', '.join(map(str, header))}: give one of them, or a"
            f" position from 0 to {len(header) - 1}, for price_format.columns.{role}."
        )
    return places[0]


def _times(places: list[int], found: Sequence[str]) -> tuple[list[int], dict[str, int]]:
    """Return the positions of the time, and of the time of day if it has its own column."""
    if sorted(found[place] for place in places) in (["date", "time"], ["day", "time"]):
        clock = next(place for place in places if found[place] == "time")
        return [place for place in places if place != clock], {"clock": clock}
    return places, {}


def _volume(found: Sequence[str]) -> int | None:
    """Return the position of the preferred name for a volume; the first if several are equal."""
    ranked = [(VOLUME.index(name), place) for place, name in enumerate(found) if name in VOLUME]
    ends = [name.startswith("volume") or name.endswith("volume") for name in found]
    ranked += [(len(VOLUME), place) for place, like in enumerate(ends) if like and found[place] not in VOLUME]
    return min(ranked)[1] if ranked else None


def _warn_of_others(header: Sequence[object], found: Sequence[str], columns: dict[str, int], path: Path) -> None:
    """Warn about the columns that are not used."""
    used = set(columns.values())
    others = [place for place, name in enumerate(found) if place not in used and name not in IGNORED]
    names = [str(header[place]).strip() for place in others if not found[place].startswith("unnamed")]
    if names:
        uses = ", ".join(f"{column} from {str(header[place]).strip()!r}" for column, place in columns.items())
        rank_zero_warn(f"{path}: ignored columns: {', '.join(names)}. Read are {uses}.")
