import numpy as np
import pytest

from datamodules.core.errors import ConfigurationError
from datamodules.trading.prices.trading_calendar import bars_per_year, checked_bars_per_year

MONDAY = np.datetime64("2020-01-06", "s")


def stamps(days: int, opening: str, bars: int, minutes: int, week: int = 7) -> np.ndarray:
    """So many bars from a time of day on, on the first `week` days of every week, without New Year's Day."""
    dates = np.datetime64(MONDAY, "D") + np.arange(days)
    dates = dates[(np.arange(days) % 7 < week) & (dates != np.datetime64("2021-01-01"))]
    hours, minute = map(int, opening.split(":"))
    within = np.timedelta64(60 * hours + minute, "m") + np.arange(bars) * np.timedelta64(minutes, "m")
    return (dates[:, None] + within).ravel().astype("datetime64[s]")


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (stamps(800, "00:00", 1, 1, week=5), 252),
        (stamps(800, "00:00", 1, 1), 365),
        (stamps(60, "09:30", 390, 1, week=5), 390 * 252),
        (stamps(60, "09:30", 7, 60, week=5), 7 * 252),
        (stamps(60, "09:30", 78, 5, week=5), 78 * 252),
        (stamps(60, "00:00", 24, 60), 24 * 365),
        (stamps(30, "00:00", 1440, 1), 1440 * 365),
        (stamps(60, "00:00", 6, 240), 6 * 365),
        (MONDAY + np.arange(400) * np.timedelta64(7, "D"), 52),
        (np.arange("2001-01", "2021-01", dtype="datetime64[M]").astype("datetime64[s]"), 12),
    ],
    ids=[
        "days",
        "crypto days",
        "minutes",
        "hours",
        "5 min",
        "crypto hours",
        "crypto minutes",
        "4 h",
        "weeks",
        "months",
    ],
)
def test_bars_a_year_follow_from_the_time_stamps(time: np.ndarray, expected: int) -> None:
    assert bars_per_year(time) == expected


def test_holidays_half_days_missing_bars_and_cut_ends_change_nothing() -> None:
    time = stamps(120, "09:30", 390, 1, week=5)
    kept = np.random.default_rng(0).random(len(time)) > 0.001  # an odd bar is missing
    date = time.astype("datetime64[D]")
    kept &= (date != np.datetime64("2020-02-17")) & (date != np.datetime64("2020-04-10"))
    kept &= (date != np.datetime64("2020-03-13")) | (time < np.datetime64("2020-03-13T13:00"))
    kept[:200] = kept[-100:] = False

    assert bars_per_year(time[kept]) == pytest.approx(390 * 252, rel=0.005)


def test_currencies_from_sunday_evening_to_friday_evening_trade_120_hours_a_week() -> None:
    hours = MONDAY - np.timedelta64(3, "h") + np.arange(0, 24 * 7 * 40) * np.timedelta64(1, "h")
    time = hours[np.arange(len(hours)) % 168 < 120]

    assert bars_per_year(time) == pytest.approx(120 * 52, rel=0.01)


@pytest.mark.parametrize(
    "time",
    [
        stamps(1, "09:30", 390, 1),
        stamps(9, "00:00", 1440, 1),
        np.concatenate([stamps(300, "00:00", 1, 1), np.datetime64("2021-06-01", "s") + np.arange(300)]),
    ],
    ids=["one day", "nine days", "days, then seconds"],
)
def test_where_the_time_stamps_do_not_tell_the_number_is_demanded(time: np.ndarray) -> None:
    assert bars_per_year(time) is None
    with pytest.raises(ConfigurationError, match=r"stamps of XYZ do not show .* give bars_per_year"):
        checked_bars_per_year(None, time, "XYZ")
    assert checked_bars_per_year(1000, time, "XYZ") == 1000


def test_a_number_in_conflict_with_the_time_stamps_is_refused_or_warned_of() -> None:
    days, hours = stamps(800, "00:00", 1, 1), stamps(60, "09:30", 7, 60, week=5)

    with pytest.raises(
        ConfigurationError, match=r"bars_per_year is 252, but the time stamps of XYZ make 1764 bars a year"
    ):
        checked_bars_per_year(252, hours, "XYZ")
    with pytest.warns(UserWarning, match="bars_per_year is 252, but .* 365 bars a year"):
        assert checked_bars_per_year(252, days, "XYZ") == 252
    assert checked_bars_per_year(None, hours, "XYZ") == 1764
    assert checked_bars_per_year(360, days, "XYZ") == 360
