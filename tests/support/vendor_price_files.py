"""Price files in the formats of vendors and tools, generated from known bars."""

import gzip
import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from datamodules.trading.prices.price_files import Prices
from datamodules.trading.prices.synthetic import synthetic_prices
from tests.support.price_fixtures import with_gaps

BARS = 260


class Bar(NamedTuple):
    """Bar as a vendor knows it: prices with two decimals, a whole volume."""

    time: datetime
    open: float
    high: float
    low: float
    close: float
    volume: int


def market(step: str = "day", level: float = 1.0, seed: int = 1, start: str = "2019-01-02") -> list[Bar]:
    """Bars of a random walk: weekdays, weeks, hours or minutes."""
    prices = with_gaps(synthetic_prices("WALK", bars=BARS, seed=seed), seed, 0.002)
    columns = [np.round(column * level * 1.0, 2) for column in (prices.open, prices.high, prices.low, prices.close)]
    volume = np.random.default_rng(seed).integers(100_000, 9_000_000, BARS)
    return [
        Bar(time, *map(float, row), int(v))
        for time, *row, v in zip(moments(step, start), *columns, volume, strict=True)
    ]


def moments(step: str, start: str) -> list[datetime]:
    """Times of the bars."""
    first = datetime.fromisoformat(start)
    if step == "day":
        days = (first + timedelta(days=day) for day in range(2 * BARS))
        return [day for day in days if day.weekday() < 5][:BARS]
    size = {"week": timedelta(weeks=1), "hour": timedelta(hours=1), "minute": timedelta(minutes=1)}[step]
    return [
        first + timedelta(hours=9 if step != "week" else 0, minutes=30 if step != "week" else 0) + k * size
        for k in range(BARS)
    ]


def as_prices(bars: Sequence[Bar]) -> Prices:
    """The arrays of bars, as they must be read."""
    time = np.array([bar.time for bar in bars], dtype="datetime64[s]")
    high = [max(bar.high, bar.open, bar.close) for bar in bars]
    low = [min(bar.low, bar.open, bar.close) for bar in bars]
    columns = ([bar.open for bar in bars], high, low, [bar.close for bar in bars], [bar.volume for bar in bars])
    return Prices("X", time, *(np.array(column, dtype=float) for column in columns))


def lines(bars: Sequence[Bar], row: str | Callable[[Bar], str], header: str = "", newest_first: bool = False) -> bytes:
    """Text with one line a bar: a format string with the fields of `Bar`, or a function."""
    write = row if callable(row) else lambda bar: as_written(bar, row)
    body = [write(bar) for bar in (reversed(bars) if newest_first else bars)]
    return ("\n".join([*([header] if header else []), *body]) + "\n").encode()


def as_written(bar: Bar, row: str) -> str:
    """One line from a format string with the fields of `Bar`, and `s` and `ms`, its time since 1970."""
    return row.format(**bar._asdict(), ms=epoch(bar) * 1000, s=epoch(bar))


def epoch(bar: Bar) -> int:
    """Seconds since 1970, the bar's time being UTC."""
    return int(bar.time.replace(tzinfo=UTC).timestamp())


def german(value: float, thousands: str = ".") -> str:
    """A number with a decimal comma."""
    return f"{value:,.2f}".replace(",", "_").replace(".", ",").replace("_", thousands)


def zipped(content: bytes, *names: str) -> bytes:
    """An archive with the content under each name."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, content)
    return buffer.getvalue()


def gzipped(content: bytes) -> bytes:
    """The content, compressed."""
    return gzip.compress(content, mtime=0)


def wide(tickers: dict[str, list[Bar]], first: str = "Price") -> bytes:
    """yfinance's CSV: field names above symbols above the name of the index, or symbols first."""
    fields = ("Close", "High", "Low", "Open", "Volume")
    pairs = [(field, ticker) for field in fields for ticker in tickers]
    top = ["Price", *(field for field, _ in pairs)], ["Ticker", *(ticker for _, ticker in pairs)]
    head = top if first == "Price" else top[::-1]
    rows = [
        [
            f"{bars[0].time:%Y-%m-%d}",
            *(str(getattr(bars[list(tickers).index(ticker)], field.lower())) for field, ticker in pairs),
        ]
        for bars in zip(*tickers.values(), strict=True)
    ]
    return ("\n".join(",".join(row) for row in [*head, ["Date", *[""] * len(pairs)], *rows]) + "\n").encode()


def parquet(bars: Sequence[Bar], shape: str) -> Callable[[Path], None]:
    """A writer of a Parquet file: with an index of dates, zoned dates, levels of columns or rows, or epoch times."""

    def write(path: Path) -> None:
        import pandas

        frame = pandas.DataFrame(
            {field.capitalize(): [getattr(bar, field) for bar in bars] for field in Bar._fields[1:]},
            index=pandas.DatetimeIndex([bar.time for bar in bars], name="Date"),
        )
        if shape == "zoned":
            frame.index = frame.index.tz_localize("America/New_York")
        if shape == "unnamed":
            frame.index.name = None
        if shape == "levels":
            frame.columns = pandas.MultiIndex.from_product([frame.columns, ["X"]], names=["Price", "Ticker"])
        if shape == "long":
            other = frame.assign(
                Close=frame["Close"] * 2, Open=frame["Open"] * 2, High=frame["High"] * 2, Low=frame["Low"] * 2
            )
            frame = pandas.concat({"X": frame, "Y": other}, names=["symbol", "timestamp"])
        if shape == "epoch":
            frame = frame.reset_index(drop=True).assign(timestamp=[1000 * epoch(bar) for bar in bars])
        frame.to_parquet(path)

    return write


class Case(NamedTuple):
    """File, and how it must be read: its bars, or the line and the setting that its refusal names."""

    file: str
    content: bytes | Callable[[Path], None]
    bars: list[Bar] | None
    settings: Mapping[str, Any] = MappingProxyType({})
    symbol: str = "X"
    refusal: str = ""
    volume: bool = True
