from itertools import pairwise

import numpy as np
import pytest

from datamodules.core.errors import ConfigurationError
from datamodules.trading.prices.time_split import split_days, time_split, walk_forward

TIME = np.arange("2000-01-01", "2005-01-01", dtype="datetime64[D]").astype("datetime64[s]")


def test_parts_follow_one_another_with_an_embargo_between() -> None:
    split = time_split(TIME, warmup=200, embargo=10, val_from="2003-01-01", test_from="2004-01-01")

    assert split.train[0] == 200 and split.val[0] - split.train[1] == split.test[0] - split.val[1] == 11
    assert str(TIME[split.val[0]]).startswith("2003-01-01") and split.test[1] == len(TIME) - 1
    assert "tests on 2004-01-01 to 2004-12-31" in split.described(TIME)


def test_by_default_training_has_three_fifths_and_the_others_one_each() -> None:
    split = time_split(TIME[:1200], warmup=200, embargo=0, val_from=None, test_from=None)

    assert split == ((200, 799), (800, 999), (1000, 1199)) and split.of("all") == (200, 1199)


def test_walk_forward_tests_cover_the_second_half_and_never_precede_training() -> None:
    folds = walk_forward(1200, warmup=200, embargo=5, folds=3)

    assert all(split.train[1] < split.val[0] and split.val[1] < split.test[0] for split in folds)
    assert all(later.test[0] == earlier.test[1] + 1 for earlier, later in pairwise(folds))
    assert folds[-1].test[1] == 1199


@pytest.mark.parametrize(
    ("starts", "fold", "embargo", "why"),
    [
        (("soon", None), (None, 3), 0, "is not a date"),
        (("2004-01-01", "2003-01-01"), (None, 3), 0, r"0 bars for val of \d+ bars from \d{4}-\d\d-\d\d to"),
        ((None, None), (3, 3), 0, "choose from 0 to 2"),
        ((None, "2003-01-01"), (1, 3), 0, "leave val_from"),
        ((None, None), (None, 3), -1, "embargo is -1"),
    ],
)
def test_splits_that_cannot_be_are_refused(starts: tuple, fold: tuple, embargo: int, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        split_days(TIME, starts, fold, warmup=200, embargo=embargo)
