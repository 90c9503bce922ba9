"""Price files with the conventions of several countries, other shapes of files, and mixtures of all."""

import random

from tests.support.vendor_cases import (
    CRYPTO,
    DATE,
    DAY,
    FEBRUARY,
    HEADER,
    HIGH,
    HOUR,
    LONG,
    MINUTE,
    OHLC,
    OHLCV,
    PLATFORMS,
    VENDORS,
    WEEK,
    YAHOO,
    with_lines,
)
from tests.support.vendor_price_files import Bar, Case, as_written, epoch, german, gzipped, lines, parquet, zipped


def europe(bar: Bar, group: str = ".", day: str = "%d.%m.%Y", separator: str = ";") -> str:
    """A line with decimal commas."""
    return separator.join([f"{bar.time:{day}}", *(german(value, group) for value in bar[1:5]), str(bar.volume)])


SEMICOLONS = "Date;Open;High;Low;Close;Volume"
QUOTED = '{time:%Y-%m-%d},"{open:,.2f}","{high:,.2f}","{low:,.2f}","{close:,.2f}","{volume:,}"'


def three(bar: Bar) -> str:
    """A line of prices with three decimals after a comma."""
    return f"{bar.time:%Y-%m-%d}," + ",".join(f'"{value:.3f}"'.replace(".", ",") for value in bar[1:5]) + ",7"


def points(bar: Bar) -> str:
    """A line of prices with three decimals after a point."""
    return f"{bar.time:%Y-%m-%d};" + ";".join(f"{value:.3f}" for value in bar[1:5]) + ";7"


def clock(bar: Bar) -> str:
    """A line with decimal commas and a time of day."""
    return europe(bar, day="%d.%m.%Y;%H:%M")


def slash(day: str) -> bytes:
    """A file of 1 February in one order of day and month."""
    return lines(FEBRUARY, f"{{time:{day} %H:%M}},{OHLCV}", HEADER)


GERMAN = "Datum;Erster;Hoch;Tief;Schluss;Stueck"
GERMAN_COLUMNS = {
    "columns": {
        "time": "Datum",
        "open": "Erster",
        "high": "Hoch",
        "low": "Tief",
        "close": "Schluss",
        "volume": "Stueck",
    }
}
LATIN = lines(DAY, f"{DATE},{OHLCV},\u00e4", f"{HEADER},Pr\u00e4mie").decode().encode("latin-1")
CONVENTIONS = [
    Case("german.csv", lines(DAY, europe, SEMICOLONS), DAY),
    Case("german_thousands.csv", lines(HIGH, europe, SEMICOLONS), HIGH),
    Case("german_date_time.zip", zipped(lines(HOUR, clock, SEMICOLONS.replace("Date", "Date;Time")), "X.csv"), HOUR),
    Case("german_names.csv", lines(DAY, europe, GERMAN), None, refusal="line 1 has no column for time.*columns: {time"),
    Case("german_names_set.csv", lines(DAY, europe, GERMAN), DAY, GERMAN_COLUMNS),
    Case("french.csv", lines(HIGH, lambda bar: europe(bar, "\u202f", "%d/%m/%Y"), SEMICOLONS), HIGH),
    Case(
        "swiss.csv",
        lines(HIGH, "{time:%d.%m.%Y};{open:,.2f};{high:,.2f};{low:,.2f};{close:,.2f};{volume}", SEMICOLONS).replace(
            b",", b"'"
        ),
        HIGH,
    ),
    Case("thousands.csv", lines(HIGH, QUOTED, HEADER), HIGH),
    Case(
        "thousands_bare.csv",
        lines(HIGH, QUOTED, HEADER).replace(b'"', b""),
        None,
        refusal=r"line 2 has \d+ cells.*columns: {time: 0",
    ),
    Case("three_decimals.csv", lines(DAY, three, HEADER), None, refusal=r"line 2: '.*,\d{3}'.*decimal: ','"),
    Case("three_decimals_set.csv", lines(DAY, three, HEADER), DAY, {"decimal": ","}, volume=False),
    Case("three_points.csv", lines(DAY, points, SEMICOLONS), None, refusal=r"line 2: '.*\.\d{3}'.*decimal: ','"),
    Case("three_points_set.csv", lines(DAY, points, SEMICOLONS), DAY, {"decimal": "."}, volume=False),
    Case(
        "both_decimals.csv",
        lines(DAY[:200], europe, SEMICOLONS) + lines(DAY[200:], "{time:%d.%m.%Y};{open};{high};{low};{close};{volume}"),
        None,
        refusal=r"line 202: .*decimal: '\.'",
    ),
    Case(
        "slashes.csv",
        slash("%d/%m/%Y"),
        None,
        refusal="line 2: '01/02/2019.* 02 Jan 2019 or 01 Feb 2019.*dayfirst: true",
    ),
    Case("slashes_dayfirst.csv", slash("%d/%m/%Y"), FEBRUARY, {"dayfirst": True}),
    Case("slashes_monthfirst.csv", slash("%m/%d/%Y"), FEBRUARY, {"dayfirst": False}),
    Case("day_first.csv", lines(DAY, f"{{time:%d/%m/%Y}},{OHLCV}", HEADER), DAY),
    Case("month_first.csv", lines(DAY, f"{{time:%m/%d/%Y}},{OHLCV}", HEADER), DAY),
    Case(
        "both_first.csv",
        lines(DAY[:200], f"{{time:%d/%m/%Y}},{OHLCV}", HEADER) + lines(DAY[200:], f"{{time:%m/%d/%Y}},{OHLCV}"),
        None,
        refusal=r"line \d+: .*date_format",
    ),
    Case(
        "two_digit_years.csv",
        lines(MINUTE, f"{{time:%y-%m-%d %H:%M}},{OHLCV}", HEADER),
        None,
        refusal="line 2: .*date_format",
    ),
    Case(
        "two_digit_years_set.csv",
        lines(MINUTE, f"{{time:%y-%m-%d %H:%M}},{OHLCV}", HEADER),
        MINUTE,
        {"date_format": "%y-%m-%d %H:%M"},
    ),
    Case("month_names.csv", lines(DAY, f"{{time:%d-%b-%y}},{OHLCV}", HEADER), DAY),
    Case(
        "serial_days.csv",
        lines(DAY, lambda bar: f"{43467 + DAY.index(bar)}," + as_written(bar, OHLCV), HEADER),
        None,
        refusal="line 2: '43467' is not a date.*date_format",
    ),
    Case("latin.csv", LATIN, None, refusal="not a text table.*encoding: cp1252"),
    Case("latin_set.csv", LATIN, DAY, {"encoding": "latin-1"}),
]
"""Numbers and dates as spreadsheets of several countries write them."""

PLAIN, SPACES = lines(DAY, f"{DATE},{OHLCV}", HEADER), lines(DAY, f"{DATE},{OHLCV}", HEADER).replace(b",", b"   ")
HALVED = [
    bar if k < 100 else Bar(bar.time, *(value / 2 for value in bar[1:5]), bar.volume) for k, bar in enumerate(DAY)
]
GAP = with_lines(PLAIN, 9, "2019-01-11,100.0,101.0,,100.5,5")
MILLISECONDS = lines(
    LONG,
    lambda bar: f"{1000 * epoch(bar)}," + as_written(bar, f"{'X' if bar in DAY else 'Y'},{OHLCV}"),
    "time,symbol,open,high,low,close,volume",
    True,
)
SHAPES = [
    *(
        Case(f"{shape}.parquet", parquet(DAY, shape), DAY)
        for shape in ("dates", "zoned", "unnamed", "levels", "long", "epoch")
    ),
    Case("tabs.tsv", PLAIN.replace(b",", b"\t"), DAY),
    Case("pipes.csv", PLAIN.replace(b",", b"|"), DAY),
    Case("spaces.txt", SPACES, DAY),
    Case(
        "colons.csv",
        lines(DAY, f"{DATE},{OHLCV}", HEADER).replace(b",", b":"),
        None,
        refusal="Line 1 is 'Date:.*sep: ':'",
    ),
    Case("colons_set.csv", lines(DAY, f"{DATE},{OHLCV}", HEADER).replace(b",", b":"), DAY, {"sep": ":"}),
    Case("two.zip", zipped(PLAIN, "X.csv", "Y.csv"), None, refusal="two.zip cannot be read.*Multiple files"),
    Case("unnamed_index.csv", lines(DAY, f"{DATE},{OHLCV}", f",{HEADER[5:]}"), DAY),
    Case(
        "row_names.csv", lines(DAY, f"1,{DATE},{OHLCV}", HEADER), None, refusal="line 2 has 7 cells.*columns: {time: 0"
    ),
    Case(
        "row_names_set.csv",
        lines(DAY, f"1,{DATE},{OHLCV}", HEADER),
        DAY,
        {"columns": {"time": 1, "open": 2, "high": 3, "low": 4, "close": 5, "volume": 6}},
    ),
    Case("joined.csv", lines(DAY[:99], f"{DATE},{OHLCV}", HEADER) + lines(DAY[99:], f"{DATE},{OHLCV}", HEADER), DAY),
    Case("gap.csv", GAP, None, refusal="line 9: low is missing.*dropna: any"),
    Case("gap_dropped.csv", GAP, DAY, {"dropna": "any"}),
    Case(
        "split.csv", lines(HALVED, f"{DATE},{OHLCV}", HEADER), None, refusal="line 102 opens .*like a split.*real_jumps"
    ),
    Case("long_milliseconds.csv.gz", gzipped(MILLISECONDS), DAY),
    Case("no_volume.csv", lines(DAY, f"{DATE},{OHLC},", HEADER), DAY, volume=False),
]
"""Parquet, archives, other separators, joined and broken files."""

CASES = [*YAHOO, *CRYPTO, *PLATFORMS, *VENDORS, *CONVENTIONS, *SHAPES]


def mixture(seed: int) -> tuple[str, bytes, list[Bar]]:
    """A file with conventions drawn at random: its name, its content and its bars."""
    generator = random.Random(seed)
    bars = generator.choice([DAY, HOUR, MINUTE, FEBRUARY, HIGH, WEEK])
    digits, separator = generator.choice([2, 2, 3]), generator.choice(",;\t|")
    decimal, group = generator.choice([(".", ""), (".", ","), (",", ""), (",", "."), (",", "\u00a0"), (".", "'")])
    day = generator.choice(
        ["%Y-%m-%d", "%Y%m%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%b-%Y", "%b %d, %Y", "%y-%m-%d"]
    )
    clock = "" if bars in (DAY, HIGH, WEEK) else generator.choice(["%H:%M", "%H:%M:%S", "%I:%M:%S %p"])
    own_column = bool(clock) and generator.random() < 0.5
    zone = "" if own_column or not clock else generator.choice(["", "+00:00", " UTC"])

    def number(value: float, places: int) -> str:
        text = f"{value:,.{places}f}".replace(",", "\0").replace(".", decimal).replace("\0", group)
        return f'"{text}"' if separator in text else text

    columns = {
        name: lambda bar, name=name: number(getattr(bar, name), digits) for name in ("open", "high", "low", "close")
    }
    columns["volume"] = lambda bar: number(bar.volume, 0)
    columns["note"] = lambda bar: "x"
    order = generator.sample(list(columns), len(columns))
    GERMAN = [
        "Date",
        *(["Time"] if own_column else []),
        *(generator.choice([str.upper, str.title, str.lower])(name) for name in order),
    ]

    def row(bar: Bar) -> str:
        cells = (
            [f"{bar.time:{day}}", f"{bar.time:{clock}}"]
            if own_column
            else [f"{bar.time:{f'{day} {clock}'.strip()}}{zone}"]
        )
        cells = [f'"{cell}"' if separator in cell else cell for cell in cells]
        return separator.join([*cells, *(columns[name](bar) for name in order)])

    content = lines(bars, row, separator.join(GERMAN), newest_first=generator.random() < 0.3)
    name = f"mixture_{seed}.csv"
    packed = generator.choice(["", "", ".gz", ".zip"])
    if packed == ".gz":
        content = gzipped(content)
    if packed == ".zip":
        content = zipped(content, name)
    return name + packed, content, bars
