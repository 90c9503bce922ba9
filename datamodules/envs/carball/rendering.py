"""Pictures of the field from above, as images and as text."""

import math

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from datamodules.core.types import State
from datamodules.envs.carball.field import (
    BACK_WALL,
    BALL_RADIUS,
    GOAL_HALF_WIDTH,
    MAX_BOOST,
    SIDE_WALL,
    pad_table,
)

WIDTH, HEIGHT = 560, 460
LEFT, TOP, SCALE = 30, 40, 500 / (2 * BACK_WALL)
"""Corner of the field in the picture, and pixels for each unit of length; the goal of orange is on the right."""

INK, GRASS, LINE = (31, 35, 40), (214, 230, 214), (255, 255, 255)
BLUE, ORANGE, BALL, PAD, NO_PAD = (0, 114, 178), (213, 94, 0), (60, 60, 60), (230, 190, 60), (190, 205, 190)
LETTERS, LINES = 41, 13


def draw_field(state: State, blue: int, seconds: float) -> Tensor:
    """Draw one environment, uint8 `[460, 560, 3]`; a larger ball is higher, and bars show the cars' boost.

    Args:
        state: leaves without the dimension of environments.   blue: number of cars of blue.
        seconds: duration of a step.
    """
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(16)
    right, bottom = pixel(SIDE_WALL, BACK_WALL)
    draw.rectangle((LEFT, TOP, right, bottom), fill=GRASS, outline=INK)
    for side, colour in ((LEFT, BLUE), (right, ORANGE)):
        ends = [pixel(x, 0)[1] for x in (-GOAL_HALF_WIDTH, GOAL_HALF_WIDTH)]
        draw.rectangle((side - 5, ends[0], side + 5, ends[1]), fill=colour)
    draw.line((*pixel(-SIDE_WALL, 0), *pixel(SIDE_WALL, 0)), fill=LINE, width=2)
    for (x, y, *_, radius), timer in zip(pad_table().tolist(), state["pads"].tolist(), strict=True):
        _disc(draw, x, y, radius * SCALE / 2, NO_PAD if timer > 0 else PAD)
    for number, (place, rotation, boost) in _cars(state):
        _draw_car(draw, place, rotation[0], boost, BLUE if number < blue else ORANGE)
    x, y, z = state["ball_position"].tolist()
    _disc(draw, x, y, BALL_RADIUS * SCALE * (1 + z / 1000) + 2, BALL)
    draw.text((LEFT, 8), title(state), fill=INK, font=font)
    draw.text((WIDTH - 130, 8), f"{float(state['steps']) * seconds:.1f} s", fill=INK, font=font)
    return torch.from_numpy(np.asarray(image).copy())


def title(state: State) -> str:
    """Return the title: the score, and the touches of every car."""
    scored, touches = float(state["scored"]), ", ".join(f"{count:.0f}" for count in state["touches"].tolist())
    return f"Car-ball   blue {int(scored > 0)} : {int(scored < 0)} orange   touches {touches}"


def pixel(x: float, y: float) -> tuple[float, float]:
    """Return the point of the picture at a place of the field: y to the right, x downward."""
    return LEFT + (y + BACK_WALL) * SCALE, TOP + (x + SIDE_WALL) * SCALE


def _disc(draw: ImageDraw.ImageDraw, x: float, y: float, radius: float, colour: tuple[int, int, int]) -> None:
    across, down = pixel(x, y)
    draw.ellipse((across - radius, down - radius, across + radius, down + radius), fill=colour)


def _draw_car(
    draw: ImageDraw.ImageDraw, place: list[float], yaw: float, boost: float, colour: tuple[int, int, int]
) -> None:
    """Draw a triangle whose tip is the nose, larger if the car is higher, above a bar of its boost."""
    x, y, z = place
    length = 130 * (1 + z / 1000)
    corners = [(yaw, 1.6), (yaw + 2.5, 1.0), (yaw - 2.5, 1.0)]
    draw.polygon(
        [pixel(x + far * length * math.cos(to), y + far * length * math.sin(to)) for to, far in corners], colour
    )
    across, down = pixel(x, y)
    draw.line((across - 12, down + 14, across + 12, down + 14), fill=LINE, width=4)
    draw.line((across - 12, down + 14, across - 12 + 24 * boost / MAX_BOOST, down + 14), fill=PAD, width=4)


def _cars(state: State) -> list[tuple[int, tuple[list[float], list[float], float]]]:
    """Return number, position, rotation and boost of every car that is present."""
    columns = (state[name].tolist() for name in ("car_position", "car_rotation", "boost"))
    cars = enumerate(zip(*columns, strict=True))
    return [(number, car) for number, car in cars if "present" not in state or state["present"][number]]


def field_text(state: State, blue: int) -> str:
    """Draw one environment in letters: below the title the field, with B for blue, O for orange and * for the ball."""
    lines = [["."] * LETTERS for _ in range(LINES - 1)]
    for number, (place, *_) in _cars(state):
        _put(lines, place, "B" if number < blue else "O")
    _put(lines, state["ball_position"].tolist(), "*")
    return "\n".join([title(state), *("".join(line) for line in lines)])


def _put(lines: list[list[str]], place: list[float], letter: str) -> None:
    row = int((place[0] + SIDE_WALL) / (2 * SIDE_WALL) * len(lines))
    column = int((place[1] + BACK_WALL) / (2 * BACK_WALL) * LETTERS)
    lines[min(max(row, 0), len(lines) - 1)][min(max(column, 0), LETTERS - 1)] = letter
