import warnings
from pathlib import Path

import pytest

from datamodules.core.errors import ConfigurationError
from datamodules.trading.prices.parsing.columns import find_columns

FILE = Path("A.csv")
BARS = ["Date", "Open", "High", "Low", "Close"]


@pytest.mark.parametrize(
    "name",
    [
        "Adj. Close",
        "Adj Close**",
        "adjusted",
        "adj_close",
        "AdjClose",
        "Adjusted_Close",
        "closeadj",
        "5. adjusted close",
    ],
)
def test_an_adjusted_close_is_found_however_it_is_spelt(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        assert find_columns([*BARS, name], FILE)["adjusted"] == 5


@pytest.mark.parametrize(
    "name", ["Volume", "vol.", "V", "tick_volume", "<TICKVOL>", "Volume BTC", "Volume_(BTC)", "Base Volume"]
)
def test_a_volume_is_found_however_it_is_spelt(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        assert find_columns([*BARS, name], FILE)["volume"] == 5


def test_punctuation_case_and_numbers_in_front_change_no_name() -> None:
    header = ["<DATE>", "1. open", "HIGH PRICE", " low ", "Close/Last"]

    assert find_columns(header, FILE) == {"time": 0, "open": 1, "high": 2, "low": 3, "close": 4}


@pytest.mark.parametrize(
    ("others", "ignored"),
    [
        (["Volume BTC", "Volume USDT"], "Volume USDT"),
        (["Quote asset volume", "Volume"], "Quote asset volume"),
        (["real_volume", "spread", "tick_volume"], "real_volume, spread"),
        (["Adj. Open", "Adj. Close", "Adj. Volume", "Volume", "Split Ratio"], "Adj. Open, Adj. Volume, Split Ratio"),
        (["VWAP", "Umsatz"], "VWAP, Umsatz"),
    ],
)
def test_every_column_that_is_not_used_is_named(others: list[str], ignored: str) -> None:
    with pytest.warns(UserWarning, match=rf"A\.csv: ignored columns: {ignored}\. Read are"):
        find_columns([*BARS, *others], FILE)


def test_row_numbers_and_symbols_are_worth_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        find_columns(["", "unix", "Symbol", *BARS, "Unnamed: 7"], FILE)


def test_a_time_of_day_and_seconds_since_1970_are_found() -> None:
    assert find_columns(["Date", "Time", *BARS[1:]], FILE)["clock"] == 1
    assert find_columns([*BARS[1:], "unix"], FILE)["time"] == 4


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ([*BARS, "c"], r"2 columns for close \(Close, c\)"),
        ([*BARS, "Adj Close", "adjusted"], r"2 columns for adjusted \(Adj Close, adjusted\)"),
        ([*BARS, "Timestamp"], r"2 columns for time \(Date, Timestamp\)"),
        (["Date", "Open", "High", "Low", "Adj Close"], "no column for close, only Date, Open, High, Low, Adj Close"),
    ],
)
def test_a_header_that_leaves_a_doubt_is_refused(header: list[str], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        find_columns(header, FILE)
