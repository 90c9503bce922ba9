"""Number of bars per year from time stamps, for annualised measures and costs.

A market that trades on five dates a week has 252 days a year, by convention; one that also trades at the weekend,
around the clock or from Sunday evening on, has 365/7 weeks a year.
"""

import numpy as np
from lightning.pytorch.utilities import rank_zero_warn
from numpy.typing import NDArray

from datamodules.core.errors import ConfigurationError

EXCHANGE_DAYS = 252
WEEKS = 365 / 7
YEAR = np.timedelta64(31_556_952, "s")
"""The mean year of the Gregorian calendar."""

DAY = np.timedelta64(1, "D")
LEAST_DAYS = 14
"""Full dates that contain every day of the week twice, so that one holiday does not hide one."""

WARNED, REFUSED = 1.1, 2.0
"""Factors between given and detected bars per year above which to warn and to refuse."""


def bars_per_year(time: NDArray[np.datetime64]) -> int | None:
    """Return the usual number of bars per year; None with fewer than 14 full days, or irregular intervals.

    Bars longer than a day and a half are counted: 52 weeks, 12 months. For shorter ones, the median number of bars on
    each day of the week gives a week, and the week a year, so that holidays and missing bars have no effect.

    Args:
        time: time of the bars in order, `[bars]`, in the market's local time.
    """
    if len(time) < 3:
        return None
    spacing = np.diff(time.astype("datetime64[s]"))
    usual = [np.median(part.astype(np.int64)) for part in np.array_split(spacing, 4) if len(part)]
    if max(usual) > 2 * max(min(usual), 1):
        return None
    if np.median(spacing.astype(np.int64)) > 1.5 * 86_400:
        return max(1, round(len(spacing) * float(YEAR / (time[-1] - time[0]))))
    dates, counts = np.unique(time.astype("datetime64[D]"), return_counts=True)
    dates, counts = dates[1:-1], counts[1:-1]  # the first and the last may be cut
    if len(dates) < 2 or dates[-1] - dates[0] < (LEAST_DAYS - 1) * DAY:
        return None
    weekday = (dates.astype(np.int64) + 3) % 7  # 1970-01-01 was a Thursday
    everyday = np.arange(dates[0].astype(np.int64), dates[-1].astype(np.int64) + 1)
    possible = np.bincount((everyday + 3) % 7, minlength=7)
    regular = [day for day in range(7) if 2 * np.sum(weekday == day) >= possible[day]]
    week = sum(float(np.median(counts[weekday == day])) for day in regular)
    return max(1, round(week * (EXCHANGE_DAYS / 5 if len(regular) == 5 else WEEKS)))


def checked_bars_per_year(given: int | None, time: NDArray[np.datetime64], source: str) -> int:
    """Return the given bars per year, else those of the time stamps; warn if both differ by more than 10 %.

    Args:
        source: name of the source of the time stamps, for the message.

    Raises:
        ConfigurationError: if none are given and the time stamps are inconclusive, or if both differ by more than a
            factor of 2.
    """
    inferred = bars_per_year(time)
    if given is None and inferred is None:
        raise ConfigurationError(
            f"The time stamps of {source} do not show how many bars a year has: give bars_per_year (252 for days of a"
            " stock exchange, 365 for days of a market that never closes, times the bars of a day)."
        )
    if given is None or inferred is None:
        return int(given or inferred or 1)
    factor = max(given / inferred, inferred / given)
    conflict = f"bars_per_year is {given}, but the time stamps of {source} make {inferred} bars a year"
    if factor > REFUSED:
        raise ConfigurationError(f"{conflict}: leave bars_per_year out (null), or give one that fits.")
    if factor > WARNED:
        rank_zero_warn(f"{conflict}; annualised values use {given}.")
    return given
