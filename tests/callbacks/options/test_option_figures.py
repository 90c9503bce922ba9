"""Figures of options: what is drawn where."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from callbacks.figures.plotting import pixels, style
from callbacks.options.option_figures import (
    OptionFigures,
    colour_of,
    draw_timeline,
    draw_usage,
    option_names,
    sum_since_start,
)
from datamodules.trading.scripted_options import OpenLong, Wait

STEPS = {
    "option": np.array([0, 0, 1, 1]),
    "started": np.array([True, False, True, False]),
    "episode_start": np.array([True, False, False, False]),
}
NAMES = ["option 0", "option 1"]


def timeline(curve: np.ndarray) -> Any:
    with style():
        return draw_timeline(STEPS, curve, "price", NAMES, "at 8 env steps")


def test_a_running_sum_begins_anew_with_every_episode():
    total = sum_since_start(np.array([1.0, 2.0, 3.0, 4.0]), np.array([False, False, True, False]))

    assert total.tolist() == [1.0, 3.0, 3.0, 7.0]


def test_the_band_shows_the_options_in_their_colours_and_lines_where_they_and_episodes_begin():
    figure = timeline(np.array([0.0, 1.0, 2.0, 3.0]))

    upper, band = figure.axes
    assert [bar.get_facecolor() for bar in band.patches] == [to_rgba(colour_of(each)) for each in STEPS["option"]]
    (begins,) = (each for each in band.collections)
    assert [segment[0, 0] for segment in begins.get_segments()] == [-0.5, 1.5]
    assert [line.get_xdata()[0] for line in upper.lines if len(line.get_xdata())] == [-0.5]
    assert [text.get_text() for text in figure.legends[0].texts] == [*NAMES, "episode start"]


def test_the_curve_has_the_colours_of_the_options_and_a_flat_one_is_drawn_too():
    rising, flat = timeline(np.array([0.0, 1.0, 2.0, 3.0])), timeline(np.ones(4))

    (curve, dots) = rising.axes[0].collections
    assert [segment[:, 1].tolist() for segment in curve.get_segments()] == [[0, 1], [1, 2], [2, 3]]
    assert dots.get_facecolors()[2].tolist() == list(to_rgba(colour_of(1)))
    assert rising.axes[0].get_ylabel() == "price" and pixels(flat).std() > 0


def test_bars_are_as_high_as_the_shares_and_say_their_numbers():
    with style():
        (axes,) = draw_usage([0.75, 0.25], NAMES, "at 8 env steps").axes

    assert [bar.get_height() for bar in axes.patches] == [0.75, 0.25]
    assert [text.get_text() for text in axes.texts] == ["75.0%", "25.0%"]
    assert [label.get_text() for label in axes.get_xticklabels()] == NAMES
    assert axes.lines[0].get_ydata()[0] == 0.5


@pytest.mark.parametrize(
    ("settings", "values", "name"),
    [
        ({}, [1.0, 3.0, 6.0, 10.0], "reward, summed over\nthe episode"),
        ({"running_sum": False}, [1.0, 2.0, 3.0, 4.0], "reward"),
        ({"curve": 1, "running_sum": False}, [5.0, 6.0, 7.0, 8.0], "obs[1]"),
        ({"curve": 1, "curve_name": "log price"}, [5.0, 11.0, 18.0, 26.0], "log price"),
    ],
)
def test_settings_choose_the_curve_and_its_name(settings: dict[str, Any], values: list[float], name: str):
    figures = OptionFigures(**settings)
    columns = {"reward": np.array([1.0, 2.0, 3.0, 4.0]), "obs": np.array([[0.0, 5.0], [0, 6], [0, 7], [0, 8]])}

    assert figures._curve(STEPS | columns).tolist() == values and figures.curve_name == name


def test_hand_written_options_have_their_own_names():
    scripted = SimpleNamespace(policies=(OpenLong(), Wait()))

    assert option_names(SimpleNamespace(num_options=2, controller=SimpleNamespace(scripted_options=scripted))) == [
        "0 OpenLong",
        "1 Wait",
    ]
    assert option_names(SimpleNamespace(num_options=2, controller=SimpleNamespace(scripted_options=None))) == NAMES
