"""Panels: where things are drawn."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from callbacks.canvas import FRAME_MS, REST_MS, SIDE, Canvas, animated, tiled


def panel(high: float = 1.0) -> Canvas:
    return Canvas(torch.tensor([-1.0, -high]), torch.tensor([1.0, high]))


def dark(canvas: Canvas) -> np.ndarray:
    """Rows and columns of the dark pixels within the frame."""
    return np.argwhere(np.asarray(tiled([[canvas]]).convert("L"))[10:-10, 10:-10] < 200) + 10


def test_an_arrow_points_where_the_field_does() -> None:
    canvas = panel()

    canvas.arrows(torch.zeros(1, 2), torch.tensor([[0.0, 9.0]]), speed=1.0)

    found = dark(canvas)
    assert found[:, 0].min() < SIDE / 2 - 20 and found[:, 0].max() <= SIDE / 2 + 3
    assert abs(found[:, 1].mean() - SIDE / 2) < 2


@pytest.mark.parametrize("high", [1.0, 8.0])
def test_an_arrow_along_the_diagonal_of_a_box_is_one_of_its_panel(high: float) -> None:
    canvas = panel(high)

    canvas.arrows(torch.zeros(1, 2), torch.tensor([[1.0, high]]), speed=canvas.speed(torch.tensor([[1.0, high]])))

    up, right = SIDE / 2 - dark(canvas)[:, 0].min(), dark(canvas)[:, 1].max() - SIDE / 2
    assert up == pytest.approx(right, abs=2) and up > 12


def test_panels_lie_in_rows() -> None:
    assert tiled([[panel(), panel(), panel()], [panel(), panel(), panel()]]).size == (3 * SIDE, 2 * SIDE)


def test_a_moving_picture_rests_on_its_last_frame() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "white")]

    gif = Image.open(io.BytesIO(animated(frames)))

    durations, colours = [], []
    for number in range(gif.n_frames):  # type: ignore[attr-defined]
        gif.seek(number)
        durations.append(gif.info["duration"])
        colours.append(gif.convert("RGB").getpixel((4, 4)))
    assert durations == [FRAME_MS, FRAME_MS, REST_MS]
    assert colours == [(255, 0, 0), (0, 0, 255), (255, 255, 255)]
