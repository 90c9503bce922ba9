"""Learning curves: what is drawn of bands, references and extreme values."""

from typing import Any

import pytest
from matplotlib.colors import to_hex

from app.plot.learning_curves import draw_learning_curves, limits
from app.plot.statistics import ConfidenceBand, Estimate, confidence_band
from callbacks.figures.plotting import COLOURS, pixels, style

CURVE = [(10, 0.1), (20, 0.5), (30, 0.4), (40, 0.9)]


def drawn(bands: dict[str, ConfidenceBand], references: dict[str, float] | None = None, **settings: Any) -> Any:
    with style():
        return draw_learning_curves({"eval/return_mean": bands}, references or {}, **settings)


def words(figure: Any) -> list[str]:
    """The names in the legend."""
    return [text.get_text() for text in figure.legends[0].texts]


def test_every_setting_is_a_line_in_its_band_and_every_reference_a_dashed_one() -> None:
    figure = drawn(
        {"a": confidence_band([CURVE, CURVE[:2]]), "b": confidence_band([CURVE])}, {"random": 0.2, "best": 1.0}
    )

    (axes,) = figure.axes
    assert [to_hex(line.get_color()) for line in axes.lines[:2]] == [*COLOURS[:2]] and len(axes.collections) == 2
    assert [line.get_ydata()[0] for line in axes.lines[2:]] == [0.2, 1.0]
    assert words(figure) == ["a", "b", "random", "best"] and axes.get_ylim()[1] > 1.0
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("environment steps", "eval/return_mean")


def test_a_setting_has_one_colour_in_all_panels() -> None:
    with style():
        figure = draw_learning_curves(
            {"x": {"b": confidence_band([CURVE])}, "y": {"a": confidence_band([CURVE]), "b": confidence_band([CURVE])}},
            {},
        )

    first, second = figure.axes
    assert first.lines[0].get_color() == second.lines[1].get_color() and words(figure) == ["b", "a"]


def test_the_interval_is_explained_only_where_there_are_seeds() -> None:
    one, several = (
        drawn({"a": confidence_band([CURVE])}),
        drawn({"a": confidence_band([CURVE, [(10, 0.0), (40, 0.3)]])}, title="Snake"),
    )

    assert one.legends[0].get_title().get_text() == "" and "95 %" in several.legends[0].get_title().get_text()
    assert (one.get_suptitle(), several.get_suptitle()) == ("eval/return_mean", "Snake")


def test_a_single_evaluation_is_a_dot_with_its_interval() -> None:
    figure = drawn({"a": confidence_band([[(10, 0.3)], [(10, 0.5)]])})

    assert figure.axes[0].containers[0].lines[0].get_marker() == "o" and pixels(figure).std() > 0


def test_single_evaluations_keep_their_whole_intervals_and_stand_apart() -> None:
    estimates = {"a": Estimate(100, 40, 180), "b": Estimate(110, 90, 120), "c": Estimate(120, 60, 400)}

    (axes,) = drawn({name: ConfidenceBand([1000], [each]) for name, each in estimates.items()}).figure.axes

    low, high = axes.get_ylim()
    assert low < 40 and high > 400
    places = [container.lines[0].get_xdata()[0] for container in axes.containers]
    assert places == pytest.approx([980, 1000, 1020]) and axes.get_xlim()[1] > 1020


@pytest.mark.parametrize("spread", [1.0, 0.0])
def test_flat_curves_keep_intervals_of_usual_width(spread: float) -> None:
    low, high = limits([ConfidenceBand([1, 2, 3], [Estimate(20 + spread * i, 10, 35) for i in range(3)])], [])

    assert low < 10 and high > 35


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_few_extreme_values_do_not_flatten_the_others(sign: float) -> None:
    values = [sign * value for value in (-1e6, *range(100))]

    low, high = limits([ConfidenceBand([*range(101)], [Estimate(value, value, value) for value in values])], [])

    assert high - low < 400 and low < sign * 50 < high


def test_steps_are_written_in_thousands_and_millions() -> None:
    figure = drawn({"a": confidence_band([[(0, 0.0), (2_000_000, 1.0)]])})
    figure.canvas.draw()

    assert {"400 k", "1.2 M"} <= {label.get_text() for label in figure.axes[0].get_xticklabels()}
