import gzip
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from datamodules.core.errors import ConfigurationError
from datamodules.trading.prices.price_files import read_prices
from datamodules.trading.prices.sources import describe_source, load_prices
from datamodules.trading.prices.synthetic import synthetic_prices
from tests.support.price_fixtures import write_lines, write_prices


def test_a_folder_holds_symbols_cut_to_the_bars_they_share(tmp_path: Path) -> None:
    long, short = synthetic_prices("WALK", bars=50), synthetic_prices("WALK", bars=48, seed=1)
    write_prices(tmp_path / "A.csv", long), write_prices(tmp_path / "B.csv", short)

    first, second = load_prices("all", str(tmp_path))

    assert (first.symbol, second.symbol) == ("A", "B") and np.array_equal(first.time, second.time)
    assert len(first.close) == 48 and load_prices("B", str(tmp_path))[0].close.tolist() == short.close.tolist()


def test_the_packaged_index_answers_to_spy_and_says_that_it_is_the_index() -> None:
    pytest.importorskip("arch", reason="needs the extra trading")

    (prices,) = load_prices("SPY")

    assert len(prices.close) == 5031 and "index" in describe_source("SPY")
    assert str(prices.time[0]).startswith("1999-01-04") and str(prices.time[-1]).startswith("2018-12-31")


def test_each_of_several_symbols_is_called_what_it_is() -> None:
    index, market = describe_source("SPY,WALK").split(". ")

    assert index.startswith("SPY: the S&P 500 index") and market == "WALK: synthetic"


def test_symbols_with_dots_are_told_apart(tmp_path: Path) -> None:
    walks = [synthetic_prices("WALK", bars=30, seed=seed) for seed in range(4)]
    for name, each in zip(("BRK.A.csv", "BRK.B.csv", "brk.CSV", "._BRK.A.csv"), walks, strict=True):
        write_prices(tmp_path / name, each)
    (tmp_path / "BRK.C.csv.gz").write_bytes(gzip.compress((tmp_path / "brk.CSV").read_bytes()))

    found = load_prices("all", str(tmp_path))

    assert [each.symbol for each in found] == ["BRK.A", "BRK.B", "BRK.C", "brk"]
    assert all(np.array_equal(each.close, walks[i].close) for each, i in zip(found, (0, 1, 2, 2), strict=True))
    assert load_prices("BRK.B", str(tmp_path))[0].close.tolist() == walks[1].close.tolist()
    assert read_prices(tmp_path / "BRK.C.csv.gz").symbol == "BRK.C"


def test_two_files_of_one_symbol_are_refused(tmp_path: Path) -> None:
    path = write_prices(tmp_path / "A.B.csv", synthetic_prices("WALK", bars=9))
    (tmp_path / "A.B.csv.gz").write_bytes(gzip.compress(path.read_bytes()))

    with pytest.raises(ConfigurationError, match=r"two files of A\.B, A\.B\.csv and A\.B\.csv\.gz"):
        load_prices("all", str(tmp_path))


def hours(path: Path, zone: str, shift: int = 0, bars: int = 20) -> Path:
    """Hourly bars from 2020-01-02T10:00 UTC on, in this time zone, whose close is the hour."""
    start = datetime(2020, 1, 2, 10, tzinfo=UTC)
    moments = [(start + timedelta(hours=hour)).astimezone(timezone(timedelta(hours=shift))) for hour in range(bars)]
    times = [moment.replace(tzinfo=None).isoformat() + zone for moment in moments]
    return write_lines(path, [f"{time},{20 + hour},40,20,{20 + hour},1" for hour, time in enumerate(times)])


def test_files_of_other_time_zones_are_aligned_by_instant(tmp_path: Path) -> None:
    hours(tmp_path / "A.csv", "+00:00"), hours(tmp_path / "B.csv", "-05:00", shift=-5, bars=19)

    first, second = load_prices("all", str(tmp_path))

    assert first.close.tolist() == second.close.tolist() == [20.0 + hour for hour in range(19)]
    assert second.time[0] == np.datetime64("2020-01-02T05:00") and first.time[0] == np.datetime64("2020-01-02T10:00")


def test_equal_clocks_of_other_time_zones_are_other_instants(tmp_path: Path) -> None:
    hours(tmp_path / "A.csv", "+00:00"), hours(tmp_path / "B.csv", "-05:00")

    with pytest.raises(ConfigurationError, match="A, B have only 15 bars in common, of 20"):
        load_prices("all", str(tmp_path))


def test_times_with_a_zone_are_not_compared_with_times_without(tmp_path: Path) -> None:
    hours(tmp_path / "A.csv", ""), hours(tmp_path / "B.csv", "+00:00")

    with pytest.raises(ConfigurationError, match="times of B have a time zone and those of A have none"):
        load_prices("all", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"symbol": ""}, "symbol is empty"),
        ({"symbol": "WALK,AR1,WALK"}, "names one twice"),
        ({"symbol": "XYZ"}, "no prices of XYZ"),
        ({"symbol": "AR1", "synthetic": {"rho": 1}}, "rho"),
        ({"symbol": "SPY", "synthetic": {"seed": 1}}, "not a synthetic market"),
        ({"symbol": "A", "prices": ".", "synthetic": {"seed": 1}}, "two sources"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        load_prices(**arguments)


def test_one_file_has_several_symbols_only_in_the_long_format(tmp_path: Path) -> None:
    walks = [synthetic_prices("WALK", bars=9, seed=seed) for seed in range(2)]
    files = [write_prices(tmp_path / f"{name}.csv", each) for name, each in zip("AB", walks, strict=True)]
    rows = [f"{line},{file.stem}" for file in files for line in file.read_text().splitlines()[1:]]
    path = write_lines(tmp_path / "both.csv", rows, "Date,Open,High,Low,Close,Volume,Symbol")

    for symbol in ("all", "A,B"):
        found = load_prices(symbol, str(path))
        assert [each.symbol for each in found] == ["A", "B"]
        assert all(np.array_equal(each.close, walk.close) for each, walk in zip(found, walks, strict=True))
    with pytest.raises(ConfigurationError, match=r"one file, .*A\.csv, for 2 symbols"):
        load_prices("A,B", str(files[0]))


def test_notes_beside_prices_are_no_prices_and_a_folder_of_text_is(tmp_path: Path) -> None:
    path = write_prices(tmp_path / "A.csv", synthetic_prices("WALK", bars=9))
    (tmp_path / "notes.txt").write_text("from the vendor")

    assert [each.symbol for each in load_prices("all", str(tmp_path))] == ["A"]

    path.rename(tmp_path / "notes.txt")
    assert [each.symbol for each in load_prices("all", str(tmp_path))] == ["notes"]


def test_a_symbol_that_the_folder_lacks_is_named(tmp_path: Path) -> None:
    write_prices(tmp_path / "A.csv", synthetic_prices("WALK", bars=9))

    with pytest.raises(ConfigurationError, match="no prices of B, only A"):
        load_prices("A,B", str(tmp_path))
