"""How many bars a year has, from their time stamps: what is reported or charged a year depends on it.

A market that trades on five dates a week has 252 days a year, by convention; one that also trades at the weekend,
around the clock or from Sunday evening on, has 365/7 weeks a year.
"""

import numpy as np
from lightning.pytorch.utilities import rank_zero_warn
from numpy.typing import NDArray

from datamodules.core.errors import UsageError

EXCHANGE_DAYS = 252
WEEKS = 365 / 7
YEAR = np.timedelta64(31_556_952, "s")
"""The mean year of the Gregorian calendar."""

DAY = np.timedelta64(1, "D")
LEAST_DAYS = 14
"""Full dates that show every day of the week twice, so that one holiday does not hide one."""

WARNED, REFUSED = 1.1, 2.0
"""Factors between the bars a year that were given and those of the time stamps."""


def bars_per_year(time: NDArray[np.datetime64]) -> int | None:
    """Return the usual number of bars a year; None where fewer than 14 full days, or spacings that change, show none.

    Bars longer than a day and a half are counted: 52 weeks, 12 months. For shorter ones, the median number of bars on
    each day of the week gives a week, and the week a year. So holidays and a few missing bars change nothing.

    Args:
        time: of the bars in order, `[bars]`, on the market's own clock.
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
    """Return the bars a year that were given, else those of the time stamps; warn if both differ by more than 10 %.

    Args:
        source: what the time stamps are of, for a reader of the message.

    Raises:
        UsageError: if none are given and the time stamps show none, or if both differ by more than a factor of 2.
    """
    inferred = bars_per_year(time)
    if given is None and inferred is None:
        raise UsageError(
            f"The time stamps of {source} do not show how many bars a year has: give bars_per_year (252 for days of a"
            " stock exchange, 365 for days of a market that never closes, times the bars of a day)."
        )
    if given is None or inferred is None:
        return int(given or inferred or 1)
    factor = max(given / inferred, inferred / given)
    conflict = f"bars_per_year is {given}, but the time stamps of {source} make {inferred} bars a year"
    if factor > REFUSED:
        raise UsageError(f"{conflict}: leave bars_per_year out (null), or give one that fits.")
    if factor > WARNED:
        rank_zero_warn(f"{conflict}; what is reported or charged a year is by {given}.")
    return given
