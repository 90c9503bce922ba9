import sys
from pathlib import Path

import numpy as np
import pytest

from datamodules.market.prices import read_prices
from datamodules.types import UsageError
from tests.datamodules.market.bars import GOOD, HEADER, write_lines


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
        ("2020-01-07,nan,12,10,11,1", 5, "open is 'nan'"),
        ("2020-01-07,11,12,10,,1", 5, "close is ''"),
        ("2020-01-07,11,12,-1,11,1", 5, "low is '-1'"),
        ("2020-01-07,11,10,9,11,1", 5, "do not enclose"),
        ("2020-01-06,11,12,10,11,1", 5, "repeats the time of line 4"),
        ("2020-01-03T12:00,11,12,10,11,1", 5, "goes back in time after line 4"),
        ("2020-02-07,11,12,10,11,1", 5, "32 days after line 4"),
        ("2020-01-07,5.7,6,5,5.5,1", 5, "like a split"),
        ("2020-01-07T00:00+01:00,11,12,10,11,1", 5, "some times have a time zone"),
        ("January,11,12,10,11,1", 5, "is no date"),
        ("2020-01-07,11", 5, "too few"),
    ],
)
def test_a_bad_line_is_refused_by_its_number(tmp_path: Path, line: str, number: int, why: str) -> None:
    path = write_lines(tmp_path / "A.csv", [*GOOD, line])

    with pytest.raises(UsageError, match=why) as refusal:
        read_prices(path)

    assert f"line {number}" in str(refusal.value)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no price file"):
        read_prices(tmp_path / "none.csv")
    with pytest.raises(UsageError, match="no column for high"):
        read_prices(write_lines(tmp_path / "A.csv", GOOD, "Date,Open,Haut,Low,Close,Volume"))
    with pytest.raises(UsageError, match="2 columns for close"):
        read_prices(write_lines(tmp_path / "B.csv", GOOD, "Date,Open,High,Low,Close,C"))
    for header in ("", "Date;Open;High;Low;Close"):
        with pytest.raises(UsageError, match="must begin with names of columns and commas between"):
            read_prices(write_lines(tmp_path / "D.csv", [], header))
    with pytest.raises(UsageError, match="1 bars"):
        read_prices(write_lines(tmp_path / "C.csv", GOOD[:1]))


def test_text_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "A.csv").write_bytes("Date,Open,High,Low,Close,Prämie\n".encode("latin-1"))

    with pytest.raises(UsageError, match=r"no table of text .* save it as CSV in UTF-8"):
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

    with pytest.raises(UsageError, match="needs pyarrow"):
        read_prices(tmp_path / "A.parquet")
