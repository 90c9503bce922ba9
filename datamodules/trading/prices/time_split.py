"""Split days into training, validation and test, in this order, with an embargo in between."""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.core.errors import ConfigurationError

Part = Literal["train", "val", "test", "all"]


class Split(NamedTuple):
    """Bars `[first, last]` of each part on which an agent may decide; the decision's result is within the part."""

    train: tuple[int, int]
    val: tuple[int, int]
    test: tuple[int, int]

    def of(self, part: Part) -> tuple[int, int]:
        """Return first and last bar of a part; `all` ranges from the first of training to the last of the test."""
        return (self.train[0], self.test[1]) if part == "all" else getattr(self, part)

    def described(self, time: NDArray[np.datetime64]) -> str:
        """Return a description of the parts by date."""
        days = time.astype("datetime64[D]")
        parts = zip(("trains", "validates", "tests"), self, strict=True)
        return ", ".join(f"{verb} on {days[first]} to {days[last]}" for verb, (first, last) in parts)


def split_days(
    time: NDArray[np.datetime64],
    starts: tuple[str | None, str | None],
    fold: tuple[int | None, int],
    *,
    warmup: int,
    embargo: int,
) -> Split:
    """Return `time_split` for these first days of validation and test, or the given fold of `walk_forward`.

    Raises: ConfigurationError as these do, and for a fold that does not exist or is given together with days.
    """
    if embargo < 0:
        raise ConfigurationError(f"embargo is {embargo}; it must be at least 0.")
    number, folds = fold
    if number is None:
        return time_split(time, warmup=warmup, embargo=embargo, val_from=starts[0], test_from=starts[1])
    if not 0 <= number < folds or any(starts):
        raise ConfigurationError(
            f"fold is {number}: choose from 0 to {folds - 1}, and leave val_from and test_from out."
        )
    return walk_forward(len(time), warmup=warmup, embargo=embargo, folds=folds)[number]


def time_split(
    time: NDArray[np.datetime64], *, warmup: int, embargo: int, val_from: str | None, test_from: str | None
) -> Split:
    """Split into training from the first bar with features on, then validation, then test.

    Args:
        warmup: bars at the start that are only observed.
        embargo: bars left out before validation and before the test, so that training and evaluation data are separate.
        val_from, test_from: first days, such as 2012-01-01; default: after 60 % and 80 % of the usable bars.

    Raises: ConfigurationError if a part has fewer than two bars.
    """
    usable = len(time) - warmup
    starts = [
        warmup + round(share * usable) if day is None else int(np.searchsorted(time, _day(day)))
        for share, day in ((0.6, val_from), (0.8, test_from))
    ]
    val, test = starts
    split = Split((warmup, val - embargo - 1), (val, test - embargo - 1), (test, len(time) - 1))
    first, last = time[[0, -1]].astype("datetime64[D]")
    return _checked(split, f"{len(time)} bars from {first} to {last}")


def walk_forward(bars: int, *, warmup: int, embargo: int, folds: int) -> list[Split]:
    """Return folds whose tests are consecutive in the second half; each trains on all bars before its validation.

    Args:
        bars: number of all bars.   warmup, embargo: as in `time_split`.

    Raises: ConfigurationError if a part has fewer than two bars.
    """
    edges = np.linspace(warmup + (bars - warmup) // 2, bars, folds + 2).round().astype(int).tolist()
    return [
        _checked(Split((warmup, val - embargo - 1), (val, test - embargo - 1), (test, end - 1)), f"{bars} bars")
        for val, test, end in zip(edges, edges[1:], edges[2:], strict=False)
    ]


def _day(text: str) -> np.datetime64:
    try:
        return np.datetime64(text, "s")
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is not a date for a split: write it as 2012-01-01.") from error


def _checked(split: Split, whole: str) -> Split:
    for name, (first, last) in split._asdict().items():
        if last - first < 2:
            raise ConfigurationError(
                f"The split leaves {max(last - first + 1, 0)} bars for {name} of {whole}: give longer prices, other"
                " days for val_from and test_from (null: after 60 % and 80 % of the bars), or a shorter embargo."
            )
    return split
