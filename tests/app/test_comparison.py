"""The statistics of a comparison against values worked out by hand."""

import math

import numpy as np
import pytest

from app.chart import COLOURS, LINE, MARGIN, SIZE, chart, ticks
from app.comparison import band, bootstrap, crossing, interquartile_mean, judged, table

CURVE = [(10, 0.1), (20, 0.5), (30, 0.4), (40, 0.9)]


@pytest.mark.parametrize(
    ("threshold", "mode", "step"), [(0.5, "max", 20), (0.6, "max", 40), (1.0, "max", math.inf), (0.4, "min", 10)]
)
def test_the_crossing_is_the_first_step_that_is_good_enough(threshold: float, mode: str, step: float) -> None:
    assert crossing(CURVE, threshold, mode) == step  # type: ignore[arg-type]


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
    result = judged("one", [CURVE, [(10, 0.9)], [(10, 0.2)]], threshold=0.9, mode="max")

    assert result.crossings == [40, 10, math.inf] and result.steps.value == 40
    assert math.isinf(result.steps.high)


def test_between_points_and_beyond_its_end_a_curve_keeps_its_value() -> None:
    course = band([CURVE, [(15, 1.0), (25, 2.0)]])

    assert course.steps == [15, 20, 25, 30, 40]
    assert [estimate.value for estimate in course.estimates] == pytest.approx([0.55, 0.75, 1.25, 1.2, 1.45])


def test_the_table_measures_steps_by_the_first_setting() -> None:
    held, active = judged("held", [[(400, 1.0)]], 0.9, "max"), judged("active", [[(200, 1.0)]], 0.9, "max")

    lines = table([held, active], "dynamics/field_r2", 0.9).splitlines()

    assert "400 [400, 400], 1 of 1" in lines[1] and "200 [200, 200] x0.50, 1 of 1" in lines[2]


def test_the_chart_shows_every_setting() -> None:
    picture = chart({"a": band([CURVE]), "b": band([[(10, 0.3), (40, 0.3)]])}, "eval/return_mean", 0.5)

    pixels = np.asarray(picture).astype(int)
    assert picture.size == (SIZE[0], SIZE[1] + 2 * LINE)
    for colour in COLOURS[:2]:
        wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert (np.abs(pixels - wanted).max(-1) < 20).sum() > 50


def test_names_stand_above_the_plot_and_hide_nothing_of_it() -> None:
    names = ["a", "a name so long that it would reach far into the curves"]
    short, long = (chart({name: band([CURVE])}, "eval/return_mean", 0.9) for name in names)

    plot = slice(MARGIN[1] + LINE - 4, None)
    assert np.array_equal(np.asarray(short)[plot], np.asarray(long)[plot])
    assert not np.array_equal(np.asarray(short), np.asarray(long))


def test_ticks_are_round() -> None:
    assert ticks(0, 2000) == [0, 500, 1000, 1500, 2000]


def test_values_that_are_not_finite_are_left_out_and_counted() -> None:
    result = judged("one", [CURVE, [(10, math.nan)], [(10, 0.5), (20, math.nan)]], None, "max")

    assert result.final.value == 0.9 and result.left_out == 2
    assert "2 of 3 left out: not finite" in table([result], "eval/return_mean", None)
    assert band(result.curves).steps == [10, 20, 30, 40] and band([[(1, math.nan)]]).steps == []
    assert math.isnan(judged("none", [[(1, math.nan)]], None, "max").final.value)


def test_a_single_evaluation_is_drawn() -> None:
    pixels = np.asarray(chart({"a": band([[(10, 0.3)], [(10, 0.5)]])}, "eval/return_mean", None)).astype(int)

    wanted = [int(COLOURS[0][i : i + 2], 16) for i in (1, 3, 5)]
    assert (np.abs(pixels[MARGIN[1] + LINE :] - wanted).max(-1) < 20).sum() > 50
