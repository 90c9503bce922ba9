"""Parse the times of a price file: dates in one format, times of day, zones, and numbers since 1970."""

import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from datamodules.core.errors import ConfigurationError
from datamodules.trading.prices.parsing.price_format import PriceFormat

if TYPE_CHECKING:
    import pandas

YEAR_FIRST = "%Y-%m-%d"
FORMATS = (
    *(YEAR_FIRST, "%m-%d-%Y", "%d-%m-%Y", "%m-%d-%y", "%d-%m-%y", "%y-%m-%d"),
    *("%b-%d-%Y", "%d-%b-%Y", "%d-%b-%y", "%B-%d-%Y", "%d-%B-%Y", "%Y-%b-%d", "%d%b%Y"),
)
"""Formats of dates whose separators (space, slash, point, comma) are replaced by `-`."""

PLAIN = ("%Y-%m-%d", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M")
"""Formats that are tried first on the whole cell: the usual ones, which nothing else reads."""

CLOCKS = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p", "%I %p")
"""Formats of times of day, and digits: up to four for hours and minutes, five or six with seconds."""

UNITS = {9: "s", 10: "s", 12: "ms", 13: "ms", 15: "us", 16: "us", 18: "ns", 19: "ns"}
"""Unit of a time since 1970 by its number of digits: from 1973 to 2286."""

PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

ZONE = r"(?:Z|(?:UTC|GMT)?\s*[+-]\d{1,2}(?::?\d{2})?|[A-Za-z]+(?:/[A-Za-z_+-]+)*)"
STAMP = (
    rf"^(?P<day>.+?)[T\s]+(?P<clock>\d{{1,2}}:\d{{2}}(?::\d{{2}}(?:[.,]\d+)?)?(?:\s*[AaPp]\.?[Mm]\.?)?"
    rf"|\d{{1,2}}\s*-?\s*[AaPp][Mm])\s*(?P<zone>{ZONE})?$"
)
DIGITS = (
    rf"^(?P<day>\d{{8}}|\d{{4}}[-./]\d{{2}}[-./]\d{{2}})(?P<clock>[T\s]+\d{{1,6}}|\d{{6}}|\d{{4}})\s*(?P<zone>{ZONE})?$"
)
WEEKDAY = r"^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*[,.]?\s+"


class Times(NamedTuple):
    """Times `[bars]` as written, and their instants in UTC; None if the file has no time zones. datetime64[s]."""

    written: "pandas.Series"
    instant: "pandas.Series | None"


def parse_times(days: "pandas.Series", clocks: "pandas.Series | None", path: Path, settings: PriceFormat) -> Times:
    """Return the times of cells of text, with lines as index.

    Numbers since 1970 are instants. All dates of a file have one format; a file whose dates have two is refused.

    Args:
        clocks: times of day, if they have their own column.

    Raises: ConfigurationError for a cell that is not a time, and for dates that can be read in two ways.
    """
    if clocks is not None:
        days = days.str.replace(r"[T\s]+0?0:00(?::00(?:\.0+)?)?$", "", regex=True) + " " + clocks
    if settings.date_format is not None:
        return _by_format(days, path, settings.date_format)
    for pattern in PLAIN:
        if (found := _parsed(days, pattern)).notna().all():
            return Times(found.astype("datetime64[s]"), None)
    number = days.str.fullmatch(r"\d+(?:\.0*)?")
    if (settings.unit is not None and number.all()) or (number.all() and _since_1970(days, path, settings)):
        return _numbers(days.str.replace(r"\..*$", "", regex=True), settings)
    parts = days.str.extract(STAMP)
    for pattern in (DIGITS, r"^(?P<day>.+)$"):
        if (left := parts["day"].isna()).any():
            parts = parts.where(
                ~left, days[left].str.extract(pattern).reindex(columns=parts.columns).reindex(days.index)
            )
    day = parts["day"].fillna("")
    first = ~day.duplicated()
    date = _dates(day[first], days[first], path, settings)
    written = day.map(dict(zip(day[first], date, strict=True))) + _clock(parts["clock"], days, path)
    return _zoned(written.astype("datetime64[s]"), parts["zone"], path)


def _since_1970(days: "pandas.Series", path: Path, settings: PriceFormat) -> bool:
    """Return whether digits are numbers since 1970; refuse digits that are dates with times as well."""
    text = days.str.replace(r"\..*$", "", regex=True)
    if not text.str.len().isin(UNITS).all():
        return False
    if (text.str.len() == 12).all():
        as_dates = text.map(lambda cell: _read(cell, "%Y%m%d%H%M")).notna()
        if as_dates.all():
            raise ConfigurationError(
                f"{path}, line {days.index[0]}: {days.iloc[0]!r} may be milliseconds since 1970, or year, month, day,"
                " hour and minute: set price_format: {unit: ms} or {date_format: '%Y%m%d%H%M'}."
            )
    return True


def _numbers(text: "pandas.Series", settings: PriceFormat) -> Times:
    """Return the instants of numbers since 1970."""
    import pandas

    per_second = text.str.len().map(UNITS).map(PER_SECOND) if settings.unit is None else PER_SECOND[settings.unit]
    instant = pandas.to_datetime(text.astype("int64") // per_second, unit="s").astype("datetime64[s]")
    return Times(instant, instant)


def _by_format(days: "pandas.Series", path: Path, pattern: str) -> Times:
    """Return times of one given format."""
    import pandas

    try:
        zoned = "%z" in pattern
        found = pandas.to_datetime(days, format=pattern, errors="coerce", utc=zoned)
    except ValueError as error:
        raise ConfigurationError(f"price_format.date_format is {pattern!r}, not a format: {error}.") from error
    _require(found, days, path, f"not a date as price_format.date_format {pattern!r}")
    if not zoned:
        return Times(found.astype("datetime64[s]"), None)
    written = days.map(lambda cell: datetime.strptime(cell, pattern).replace(tzinfo=None)).astype("datetime64[s]")
    return Times(written, found.dt.tz_localize(None).astype("datetime64[s]"))


def _dates(days: "pandas.Series", whole: "pandas.Series", path: Path, settings: PriceFormat) -> "pandas.Series":
    """Return the days in the one format that reads all of them.

    Raises: ConfigurationError if no format does, or two do and disagree.
    """
    text = days.str.replace(WEEKDAY, "", regex=True).str.replace(r"[\s./,-]+", "-", regex=True).str.strip("-")
    text = text.str.replace(r"^(\d{4})(\d{2})(\d{2})$", r"\1-\2-\3", regex=True)
    found = {pattern: _parsed(text, pattern) for pattern in FORMATS if _suits(pattern, settings.dayfirst)}
    complete = {pattern: dates for pattern, dates in found.items() if dates.notna().all()}
    if not complete:
        best = max(found, key=lambda pattern: int(found[pattern].notna().sum()))
        usual = found[best].notna()
        others = f"; most others are as {whole[usual].iloc[0]!r}" if usual.any() else ""
        _require(
            found[best],
            whole,
            path,
            f"not a date{others}: write it as 2020-12-31, with a time if bars are shorter, or set"
            " price_format: {date_format: '%d.%m.%Y'}",
        )
    (pattern, dates), *rest = complete.items()
    for other, differing in rest:
        if (differs := (dates != differing).to_numpy(bool)).any():
            line, place = days.index[differs.argmax()], int(differs.argmax())
            either = [f"{each.iloc[place]:%d %b %Y}" for each in (dates, differing)]
            day_first = [pattern.index("%d") < pattern.index("%m") for pattern in (pattern, other) if "%m" in pattern]
            setting = (
                "{dayfirst: true} or {dayfirst: false}"
                if "%Y" in pattern and "%Y" in other and len(set(day_first)) == 2
                else "{date_format: '%d/%m/%y'}, or another"
            )
            raise ConfigurationError(
                f"{path}, line {line}: {whole.iloc[place]!r} is {either[0]} or {either[1]}, and no date of the file"
                f" decides: set price_format: {setting}."
            )
    return dates


def _suits(pattern: str, dayfirst: bool | None) -> bool:
    """Return whether a format puts day and month in the given order; others than numbers have only one."""
    if dayfirst is None or "%m" not in pattern or pattern.startswith(YEAR_FIRST[:2]):
        return True
    return not pattern.startswith("%y") and (pattern.index("%d") < pattern.index("%m")) == dayfirst


def _parsed(text: "pandas.Series", pattern: str) -> "pandas.Series":
    import pandas

    return pandas.to_datetime(text, format=pattern, errors="coerce")


def _clock(clocks: "pandas.Series", whole: "pandas.Series", path: Path) -> "pandas.Series":
    """Return times of day as intervals since midnight."""
    import pandas

    text = clocks.fillna("").str.strip("T \t").str.upper()
    digits = [len(cell) for cell in text.unique() if cell.isdecimal()]
    width = 6 if max(digits, default=0) > 4 else 4
    seconds = {cell: _seconds(cell, width) for cell in text.unique()}
    found = text.map(seconds)
    _require(found, whole, path, "not a date with a time: write it as 2020-12-31 16:00")
    return pandas.to_timedelta(found.astype("int64"), unit="s")


def _seconds(clock: str, width: int) -> int | None:
    """Return the seconds of a time of day; None if it is none."""
    if not clock:
        return 0
    if clock.isdecimal():
        clock = ":".join(re.findall("..", clock.zfill(width)))
    clock = re.sub(r"\s*-?\s*([AP])\.?M\.?$", r" \1M", clock.replace(",", "."))
    clock = re.sub(r"(\.\d{6})\d+", r"\1", clock)
    moment = next((moment for pattern in CLOCKS if (moment := _read(clock, pattern)) is not None), None)
    return None if moment is None else 3600 * moment.hour + 60 * moment.minute + moment.second


def _read(text: str, pattern: str) -> datetime | None:
    try:
        return datetime.strptime(text, pattern)
    except ValueError:
        return None


def _zoned(written: "pandas.Series", zones: "pandas.Series", path: Path) -> Times:
    """Return times with their instants, if they have zones."""
    import pandas

    if zones.isna().all():
        return Times(written, None)
    if (odd := (zones.isna() != zones.isna().iloc[0]).to_numpy(bool)).any():
        raise ConfigurationError(
            f"{path}, line {written.index[odd.argmax()]}: some times have a time zone and others none."
        )
    instant = written.copy()
    for zone in zones.unique():
        rows = zones == zone
        if (match := re.fullmatch(r"(?:UTC|GMT)?\s*(?:([+-])(\d{1,2}):?(\d{2})?)?|Z", zone)) is not None:
            sign, hours, minutes = match.groups()
            offset = (-1 if sign == "-" else 1) * (60 * int(hours or 0) + int(minutes or 0))
            instant[rows] = written[rows] - pandas.Timedelta(minutes=offset)
            continue
        try:
            local = written[rows].dt.tz_localize(ZoneInfo(zone), ambiguous="NaT", nonexistent="NaT")
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ConfigurationError(
                f"{path}, line {written.index[rows.argmax()]}: {zone!r} is not a time zone: write its difference to"
                " UTC, as 2020-12-31 16:00-05:00."
            ) from None
        _require(local, written[rows].astype(str) + " " + zone, path, "no time, or two: clocks are changed")
        instant[rows] = local.dt.tz_convert("UTC").dt.tz_localize(None).astype("datetime64[s]")
    return Times(written, instant)


def _require(found: "pandas.Series", whole: "pandas.Series", path: Path, problem: str) -> None:
    """Refuse the first cell that could not be read."""
    if (missing := found.isna().to_numpy(bool)).any():
        raise ConfigurationError(
            f"{path}, line {whole.index[missing.argmax()]}: {whole.iloc[missing.argmax()]!r} is {problem}."
        )
