"""The statistics of a comparison against values worked out by hand."""

import math

import numpy as np
import pytest

from app.plot.statistics import (
    bootstrap,
    confidence_band,
    interquartile_mean,
    paired_differences,
    paired_table,
    steps_to_threshold,
    summarize_setting,
    table,
)

CURVE = [(10, 0.1), (20, 0.5), (30, 0.4), (40, 0.9)]


@pytest.mark.parametrize(
    ("threshold", "mode", "step"), [(0.5, "max", 20), (0.6, "max", 40), (1.0, "max", math.inf), (0.4, "min", 10)]
)
def test_the_crossing_is_the_first_step_that_is_good_enough(threshold: float, mode: str, step: float) -> None:
    assert steps_to_threshold(CURVE, threshold, mode) == step  # type: ignore[arg-type]


def test_the_interquartile_mean_leaves_out_a_quarter_at_either_end() -> None:
    assert interquartile_mean([100.0, 1.0, 2.0, 3.0, -50.0, 4.0, 5.0, 6.0]) == pytest.approx(3.5)
    assert interquartile_mean([1.0, 3.0]) == 2.0


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)

    covered = [
        estimate.low <= 0 <= estimate.high
        for estimate in (bootstrap(random.normal(size=30).tolist(), np.mean) for _ in range(100))  # type: ignore[arg-type]
    ]

    assert 85 <= sum(covered) <= 100


def test_a_seed_that_never_gets_there_counts_as_later_than_all_others() -> None:
    result = summarize_setting("one", [CURVE, [(10, 0.9)], [(10, 0.2)]], threshold=0.9, mode="max")

    assert result.crossings == [40, 10, math.inf] and result.steps.value == 40
    assert math.isinf(result.steps.high)


def test_between_points_and_beyond_its_end_a_curve_keeps_its_value() -> None:
    course = confidence_band([CURVE, [(15, 1.0), (25, 2.0)]])

    assert course.steps == [15, 20, 25, 30, 40]
    assert [estimate.value for estimate in course.estimates] == pytest.approx([0.55, 0.75, 1.25, 1.2, 1.45])


def test_the_table_measures_steps_by_the_first_setting() -> None:
    held, active = (
        summarize_setting("held", [[(400, 1.0)]], 0.9, "max"),
        summarize_setting("active", [[(200, 1.0)]], 0.9, "max"),
    )

    lines = table([held, active], "dynamics/field_r2", 0.9).splitlines()

    assert "400 [400, 400], 1 of 1" in lines[1] and "200 [200, 200] x0.50, 1 of 1" in lines[2]


def test_runs_of_the_same_seed_are_paired() -> None:
    held, active = (
        summarize_setting(name, [[(10, start), (20, start + gain)] for start in (0.0, 5.0, 9.0)], None, "max")
        for name, gain in (("held", 0.25), ("active", 0.75))
    )

    last, whole = paired_differences(active, held)

    assert last == (0.5, 0.5, 0.5) and whole == (0.25, 0.25, 0.25)
    lines = paired_table([active, held], "dynamics/field_r2").splitlines()
    assert lines[1] == "active minus held: final +0.5 [+0.5, +0.5], mean of the curve +0.25 [+0.25, +0.25]"


def test_curves_with_points_at_other_steps_are_compared_at_the_same_ones() -> None:
    often, seldom = (
        summarize_setting(name, [[(step, float(step)) for step in steps]], None, "max")
        for name, steps in (("often", (10, 20, 30, 40)), ("seldom", (30, 40)))
    )

    assert paired_differences(often, seldom)[1] == (0.0, 0.0, 0.0)


def test_pairs_with_a_value_that_is_not_finite_are_left_out() -> None:
    first, other = (
        summarize_setting(name, [[(10, value)], [(10, 1.0)]], None, "max")
        for name, value in (("a", math.nan), ("b", 0.0))
    )

    assert paired_differences(first, other)[0] == (0.0, 0.0, 0.0)


def test_interquartile_mean_and_mean_stand_side_by_side() -> None:
    result = summarize_setting("one", [[(10, value)] for value in (0.0, 1.0, 2.0, 9.0)], None, "max")

    assert result.final.value == 1.5 and result.mean.value == 3.0
    assert "IQM and mean" in table([result], "eval/return_mean", None)
    assert "1.5 [" in table([result], "eval/return_mean", None) and "mean 3 [" in table(
        [result], "eval/return_mean", None
    )


def test_values_that_are_not_finite_are_left_out_and_counted() -> None:
    result = summarize_setting("one", [CURVE, [(10, math.nan)], [(10, 0.5), (20, math.nan)]], None, "max")

    assert result.final.value == 0.9 and result.left_out == 2
    assert "2 of 3 left out: not finite" in table([result], "eval/return_mean", None)
    assert confidence_band(result.curves).steps == [10, 20, 30, 40] and confidence_band([[(1, math.nan)]]).steps == []
    assert math.isnan(summarize_setting("none", [[(1, math.nan)]], None, "max").final.value)


def test_a_single_seed_keeps_all_its_steps() -> None:
    points = [(step, float(step)) for step in range(300)]

    course = confidence_band([points])

    assert course.steps == [step for step, _ in points] and course.estimates[7] == (7.0, 7.0, 7.0)
