"""The style of figures: what they look like, and what they leave behind."""

import gc
import io
import subprocess
import sys
import weakref
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from PIL import Image

from callbacks.figures.plotting import (
    COLOURS,
    FRAME_MS,
    REST_MS,
    STYLE,
    encode,
    gif,
    legend_below,
    new_figure,
    pixels,
    style,
)


def test_a_figure_is_light_whatever_the_settings_of_the_user() -> None:
    with matplotlib.rc_context({"figure.facecolor": "black", "axes.facecolor": "black", "text.color": "white"}):
        with style():
            figure, ((axes,),) = new_figure()
            axes.set_title("words")
        picture = pixels(figure)
        assert matplotlib.rcParams["axes.facecolor"] == "black"

    assert picture.shape == (400, 640, 3) and picture.dtype == np.uint8
    assert picture.mean() > 240 and picture.min() < 100


def test_every_setting_of_the_style_is_set_within_it() -> None:
    with style():
        assert all(matplotlib.rcParams[name] == value for name, value in matplotlib.RcParams(STYLE).items())


def test_nothing_keeps_a_figure_alive() -> None:
    with style():
        figure, _ = new_figure()
        pixels(figure), encode(figure)
    gone = weakref.ref(figure)

    del figure, _
    gc.collect()

    assert gone() is None


def test_a_png_has_the_size_of_its_figure() -> None:
    with style():
        figure, _ = new_figure(size=(2, 1))

    assert Image.open(io.BytesIO(encode(figure))).size == (200, 100)


@pytest.mark.parametrize(
    ("names", "rows"), [(["a", "b"], 1), (["a long name of an option"] * 5, 3), (["n" * 40] * 2, 2)]
)
def test_a_legend_has_as_many_rows_as_it_needs(names: list[str], rows: int) -> None:
    with style():
        figure, ((axes,),) = new_figure()
        legend_below(figure, [axes.plot([0, 1], label=name)[0] for name in names])

    (legend,) = figure.legends
    figure.canvas.draw()
    box = legend.get_window_extent()
    assert -(-len(names) // legend._ncols) == rows and box.x0 >= 0 and box.x1 <= 640


def test_a_video_rests_on_its_last_frame() -> None:
    frames = [np.full((8, 8, 3), colour, np.uint8) for colour in ((255, 0, 0), (0, 0, 255), (255, 255, 255))]

    video = Image.open(io.BytesIO(gif(frames)))

    durations, colours = [], []
    for number in range(video.n_frames):  # type: ignore[attr-defined]
        video.seek(number)
        durations.append(video.info["duration"])
        colours.append(video.convert("RGB").getpixel((4, 4)))
    assert durations == [FRAME_MS, FRAME_MS, REST_MS]
    assert colours == [(255, 0, 0), (0, 0, 255), (255, 255, 255)]


def test_colours_are_distinct() -> None:
    assert len(set(COLOURS)) == len(COLOURS) == 8


def test_matplotlib_is_imported_with_the_first_figure() -> None:
    script = """
import sys
from callbacks.figures.plotting import new_figure, style
before = "matplotlib" in sys.modules
with style():
    new_figure()
print(before, "matplotlib" in sys.modules, "matplotlib.pyplot" in sys.modules)
"""

    done = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[3], capture_output=True, text=True)

    assert done.stdout.split() == ["False", "True", "False"], done.stderr
