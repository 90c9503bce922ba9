import gzip
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datamodules.core.errors import ConfigurationError
from datamodules.trading.prices.price_files import read_prices
from tests.support.price_fixtures import GOOD, HEADER, write_lines


def test_columns_are_found_by_name_in_any_order_and_case(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "A.csv", ["7,10.5,2020-01-02,9,11,10", "8,10.6,2020-01-03,9,11,10"], "v,C,DATE,l,H,o")

    prices = read_prices(path)

    assert prices.symbol == "A" and prices.close.tolist() == [10.5, 10.6] and prices.volume.tolist() == [7, 8]
    assert prices.time[0] == np.datetime64("2020-01-02")


def test_newest_first_is_turned_around(tmp_path: Path) -> None:
    forward, backward = write_lines(tmp_path / "f.csv", GOOD), write_lines(tmp_path / "b.csv", GOOD[::-1])

    assert read_prices(forward).close.tolist() == read_prices(backward).close.tolist()


def test_an_adjusted_close_adjusts_all_four_prices(tmp_path: Path) -> None:
    lines = ["2020-01-02,10,11,9,10,1,5", "2020-01-03,5,6,4,5,1,5"]  # a 2 for 1 split between the two

    prices = read_prices(write_lines(tmp_path / "A.csv", lines, HEADER + ",Adj Close"))

    assert prices.close.tolist() == [5, 5] and prices.open.tolist() == [5, 5] and prices.high.tolist() == [5.5, 6]


def test_times_with_zones_are_ordered_by_instant_and_keep_their_own_clock(tmp_path: Path) -> None:
    lines = ["2020-10-25T02:30+02:00,1,1,1,1,1", "2020-10-25T02:30+01:00,1,1,1,1,1"]  # clocks go back in between

    prices = read_prices(write_lines(tmp_path / "A.csv", lines))

    assert prices.time[0] == prices.time[1] == np.datetime64("2020-10-25T02:30")


@pytest.mark.parametrize(
    ("line", "number", "why"),
    [
        ("2020-01-07,nan,12,10,11,1", 5, "open is missing.*dropna: any"),
        ("2020-01-07,11,inf,10,11,1", 5, "high is 'inf'"),
        ("2020-01-07,11,12,10,,1", 5, "close is missing.*dropna: any"),
        ("2020-01-07,11,12,-1,11,1", 5, "low is '-1'"),
        ("2020-01-07,11,10,9,11,1", 5, "do not enclose"),
        ("2020-01-06,11,12,10,11,1", 5, "repeats the time of line 4"),
        ("2020-01-03T12:00,11,12,10,11,1", 5, "goes back in time after line 4"),
        ("2020-02-07,11,12,10,11,1", 5, "32 days after line 4"),
        ("2020-01-07,5.7,6,5,5.5,1", 5, "like a split"),
        ("2020-01-07T00:00+01:00,11,12,10,11,1", 5, "some times have a time zone"),
        ("January,11,12,10,11,1", 5, "is not a date"),
        ("2020-01-07,11", 5, "high is missing"),
    ],
)
def test_a_bad_line_is_refused_by_its_number(tmp_path: Path, line: str, number: int, why: str) -> None:
    path = write_lines(tmp_path / "A.csv", [*GOOD, line])

    with pytest.raises(ConfigurationError, match=why) as refusal:
        read_prices(path)

    assert f"line {number}" in str(refusal.value)


def split_bars(ratio: float) -> list[str]:
    """Bars whose price is divided by `ratio` before the third, whose market opens 2 % higher."""
    days = [f"2020-01-{day:02}" for day in range(2, 12)]
    factors = [1.0, 1.0, *[1.02 / ratio] * 8]
    return [f"{day},{10 * f},{10.2 * f},{9.9 * f},{10.1 * f},5" for day, f in zip(days, factors, strict=True)]


@pytest.mark.parametrize("ratio", [5 / 4, 4 / 3, 3 / 2, 2.0, 3.0, 7.0, 4 / 5, 1 / 2, 1 / 10], ids=lambda r: f"{r:.3g}")
def test_a_split_that_is_not_adjusted_for_is_refused_with_the_setting_that_allows_it(tmp_path: Path, ratio: float):
    path = write_lines(tmp_path / "A.csv", split_bars(ratio))

    with pytest.raises(
        ConfigurationError, match=r"line 4 opens at .* like a split: .* set real_jumps: \['2020-01-04'\]"
    ):
        read_prices(path)

    adjusted = [
        f"{line},{10.1 * 1.02 / ratio if row < 2 else line.split(',')[4]}" for row, line in enumerate(split_bars(ratio))
    ]
    assert read_prices(write_lines(tmp_path / "B.csv", adjusted, HEADER + ",Adj Close")).close.std() < 1e-9


@pytest.mark.parametrize("header", [HEADER, HEADER + ",Adj Close"])
def test_a_real_fall_is_allowed_on_its_day_alone(tmp_path: Path, header: str) -> None:
    """A fall of 40 %, then another of 30 %, which an adjusted close does not explain."""
    fallen = [f"{line},{float(line.split(',')[4]) * 0.9}" if "Adj" in header else line for line in split_bars(1 / 0.6)]
    again = "2020-01-12,4,4.2,3.9,4.1,5" + (",3.69" if "Adj" in header else "")
    once, twice = (
        write_lines(tmp_path / "A.csv", fallen, header),
        write_lines(tmp_path / "B.csv", [*fallen, again], header),
    )

    prices = read_prices(once, real_jumps=["2020-01-04"])

    assert prices.close[2] / prices.close[1] == pytest.approx(0.6 * 1.02)
    with pytest.raises(ConfigurationError, match="line 12 opens at"):
        read_prices(twice, real_jumps=["2020-01-04"])
    assert len(read_prices(twice, real_jumps="all").close) == 11


def test_a_split_within_a_weekly_bar_is_refused(tmp_path: Path) -> None:
    lines = ["2020-01-03,100,101,99,100,1", "2020-01-10,100,102,49,50,1", "2020-01-17,50,51,49,50,1"]

    with pytest.raises(ConfigurationError, match=r"line 3 closes at 0\.5 times its open, like a split"):
        read_prices(write_lines(tmp_path / "A.csv", lines))


@pytest.mark.parametrize("days", ["soon", ["2020-13-01"], 7])
def test_days_that_are_none_are_refused(tmp_path: Path, days: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"real_jumps is .*: give days such as"):
        read_prices(write_lines(tmp_path / "A.csv", GOOD), real_jumps=days)


def test_months_are_no_gaps(tmp_path: Path) -> None:
    lines = [f"{year}-{month:02}-28,1,1,1,1,1" for year in (2019, 2020) for month in range(1, 13)]

    assert len(read_prices(write_lines(tmp_path / "A.csv", lines)).close) == 24
    with pytest.raises(ConfigurationError, match="line 6 comes 122 days after line 5"):
        read_prices(write_lines(tmp_path / "B.csv", lines[:4] + lines[7:]))


@pytest.mark.parametrize(
    ("cells", "header"),
    [
        (["1577959200", "1577962800"], "unix"),
        (["1577959200000", "1577962800000"], "timestamp"),
        (["2020-01-02 10:00+00:00", "2020-01-02T11:00Z"], "Date"),
        (["2020.01.02,10:00", "2020.01.02,11:00:00"], "<DATE>,<TIME>"),
        (["2020/1/2,10:00", "2020/01/02,11:00"], "Date,Time"),
        (["20200102 10:00", "20200102 11:00"], "Date"),
    ],
)
def test_times_are_read_as_they_come(tmp_path: Path, cells: list[str], header: str) -> None:
    path = write_lines(tmp_path / "A.csv", [f"{cell},1,1,1,1" for cell in cells], header + ",Open,High,Low,Close")

    assert read_prices(path).time.tolist() == [datetime(2020, 1, 2, 10), datetime(2020, 1, 2, 11)]


def test_rows_without_prices_are_dropped_with_their_count(tmp_path: Path) -> None:
    lines = [GOOD[0], "2020-01-02,,,,,", "2020-01-02,0.42 Dividend,,,,", *GOOD[1:]]

    with pytest.warns(UserWarning, match=r"A\.csv: 2 of 5 rows have no prices .* first in line 3"):
        prices = read_prices(write_lines(tmp_path / "A.csv", lines))

    assert prices.close.tolist() == [10.5, 10.8, 11.5]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"day_first": True}, "no setting 'day_first': choose from sep, decimal"),
        ({"sep": 3}, "price_format.sep of the price file is 3; it must be a text or null"),
        ({"columns": 3}, "price_format.columns of the price file is 3; it must be a mapping of a text to a text or"),
        ({"dayfirst": "yes"}, "price_format.dayfirst is 'yes': choose from null, True, False"),
        ({"unit": "min"}, "price_format.unit is 'min'"),
        ({"columns": {"price": "Close"}}, "price_format.columns names 'price'"),
        ({"columns": {"close": "Ende"}}, "line 1 has 0 columns 'Ende'"),
        ({"decimal": ",", "thousands": ","}, "for both decimal and thousands"),
        ({"date_format": "%d.%m.%Y"}, "line 2: '2020-01-02' is not a date as price_format.date_format"),
        ({"encoding": "klingon"}, "cannot be read.*klingon"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, settings: dict, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        read_prices(write_lines(tmp_path / "A.csv", GOOD), price_format=settings)


def test_a_symbol_other_than_the_files_is_warned_of(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "A.csv", [f"{line},AAPL" for line in GOOD], HEADER + ",Symbol")

    with pytest.warns(UserWarning, match="holds prices of AAPL, which are used for MSFT"):
        assert read_prices(path, "MSFT").symbol == "MSFT"


def test_without_pandas_a_file_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)

    with pytest.raises(ConfigurationError, match=r"A\.csv needs pandas: pip install"):
        read_prices(write_lines(tmp_path / "A.csv", GOOD))


def test_an_ignored_column_is_named_with_its_file(tmp_path: Path) -> None:
    lines = [f"{line},7" for line in GOOD]

    with pytest.warns(UserWarning, match=r"A\.csv: ignored columns: Adj Open"):
        read_prices(write_lines(tmp_path / "A.csv", lines, HEADER + ",Adj Open"))


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no price file"):
        read_prices(tmp_path / "none.csv")
    with pytest.raises(ConfigurationError, match="no column for high"):
        read_prices(write_lines(tmp_path / "A.csv", GOOD, "Date,Open,Haut,Low,Close,Volume"))
    with pytest.raises(ConfigurationError, match="2 columns for close"):
        read_prices(write_lines(tmp_path / "B.csv", GOOD, "Date,Open,High,Low,Close,C"))
    with pytest.raises(ConfigurationError, match="must begin with names of columns and commas between"):
        read_prices(write_lines(tmp_path / "D.csv", [], ""))
    with pytest.raises(ConfigurationError, match="1 bars"):
        read_prices(write_lines(tmp_path / "C.csv", GOOD[:1]))


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "A.csv").write_bytes("Date,Open,High,Low,Close,Prämie\n".encode("latin-1"))

    with pytest.raises(ConfigurationError, match=r"not a text table .* save it as CSV in UTF-8"):
        read_prices(tmp_path / "A.csv")


def test_parquet_reads_like_csv(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="needs the extra trading")
    parquet = pytest.importorskip("pyarrow.parquet")
    prices = read_prices(write_lines(tmp_path / "A.csv", GOOD))
    names = ("open", "high", "low", "close", "volume")
    columns = {"date": prices.time.astype("datetime64[D]")} | {name: getattr(prices, name) for name in names}

    parquet.write_table(arrow.table(columns), tmp_path / "A.parquet")

    assert all(np.array_equal(*pair) for pair in zip(read_prices(tmp_path / "A.parquet")[1:], prices[1:], strict=True))


def test_without_pyarrow_parquet_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "A.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)

    with pytest.raises(ConfigurationError, match="needs pyarrow"):
        read_prices(tmp_path / "A.parquet")


@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "of another checksum"])
def test_a_damaged_compressed_file_is_one_sentence(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "A.csv.gz"
    content = bytearray(gzip.compress(write_lines(tmp_path / "A.csv", GOOD).read_bytes(), mtime=0))
    flipped, unequal = content.copy(), content.copy()
    flipped[20] ^= 255
    unequal[-6] ^= 1
    damaged = {"truncated": content[:-20], "flipped": flipped, "empty": b"", "of another checksum": unequal}
    path.write_bytes(damaged[damage])

    with pytest.raises(ConfigurationError, match=r"A\.csv\.gz (is damaged|is not a text table|must begin)") as error:
        read_prices(path)
    assert "\n" not in str(error.value)


def test_a_damaged_parquet_file_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "A.parquet").write_bytes(b"PAR1" + bytes(40) + b"PAR1")

    with pytest.raises(ConfigurationError, match=r"A\.parquet is damaged, or not a Parquet file") as error:
        read_prices(tmp_path / "A.parquet")
    assert "\n" not in str(error.value)
