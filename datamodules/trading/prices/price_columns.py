"""Identify the columns of a price file; names are compared without case, spaces and punctuation."""

import re
from collections.abc import Sequence
from pathlib import Path

from lightning.pytorch.utilities import rank_zero_warn

from datamodules.core.errors import ConfigurationError

NAMES = {
    "time": ("date", "datetime", "timestamp", "time", "day"),
    "open": ("open", "openprice", "priceopen", "o"),
    "high": ("high", "highprice", "pricehigh", "h"),
    "low": ("low", "lowprice", "pricelow", "l"),
    "close": ("close", "closeprice", "priceclose", "closelast", "c"),
    "adjusted": (
        *("adjclose", "adjustedclose", "closeadj", "closeadjusted", "adjclosed", "adjustedclosed"),
        *("adjcloseprice", "adjustedcloseprice", "adjprice", "adjustedprice", "adjusted", "adj"),
    ),
}
"""Accepted names of columns, normalised; a file must have one of each."""

VOLUME = ("volume", "vol", "v", "tickvolume", "tickvol", "realvolume", "realvol", "volumetraded", "sharevolume")
"""Accepted names of a volume, in order of preference; then any name that begins or ends with `volume`."""

EPOCH = ("unix", "unixtime", "unixtimestamp", "epoch", "opentime")
"""Columns of seconds or milliseconds since 1970: the time of a file without another time column."""

OPTIONAL = ("adjusted",)
IGNORED = ("", "index", "symbol", "ticker", "tic", "name", "currency", "exchange", "interval", *EPOCH)
"""Columns ignored without a warning, and names that pandas gives to row numbers."""


def normalised(name: object) -> str:
    """Return the letters and digits of a column's name in lower case, without leading digits: `5. Adj. Close`."""
    return re.sub(r"[\W_]+", "", str(name).lower()).lstrip("0123456789")


def find_columns(header: Sequence[object], path: Path) -> dict[str, int]:
    """Return the index of each column: time, clock (a time of day beside a date), open, high, low, close, volume, ...

    Warns about every non-empty column that is not used, by name.

    Raises: ConfigurationError for an invalid header, a missing column, and a duplicate one.
    """
    if len(header) < 2:
        raise ConfigurationError(
            f"{path} must begin with names of columns and commas between: date,open,high,low,close."
        )
    found, columns = [normalised(name) for name in header], dict[str, int]()
    for column, names in NAMES.items():
        places = [place for place, name in enumerate(found) if name in names]
        if column == "time":
            places, clock = _times(places, found)
            columns |= clock
        if len(places) > 1:
            twice = ", ".join(str(header[place]).strip() for place in places)
            raise ConfigurationError(f"{path} has {len(places)} columns for {column} ({twice}): leave one of them.")
        if places:
            columns[column] = places[0]
        elif column not in OPTIONAL:
            has = ", ".join(str(name).strip() for name in header)
            raise ConfigurationError(f"{path} has no column for {column}, only {has}: name it {names[0]}.")
    if (volume := _volume(found)) is not None:
        columns["volume"] = volume
    _warn_of_others(header, found, columns, path)
    return columns


def _times(places: list[int], found: Sequence[str]) -> tuple[list[int], dict[str, int]]:
    """Return the indices of the time, and of the time of day if it has its own column."""
    if not places:
        return [place for place, name in enumerate(found) if name in EPOCH][:1], {}
    if sorted(found[place] for place in places) in (["date", "time"], ["day", "time"]):
        clock = next(place for place in places if found[place] == "time")
        return [place for place in places if place != clock], {"clock": clock}
    return places, {}


def _volume(found: Sequence[str]) -> int | None:
    """Return the index of the preferred name for a volume; the first if several are equal."""
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
