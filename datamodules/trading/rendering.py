"""Draw the account of a trader: the closes so far, the weight held, and the equity."""

import math

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

WIDTH, HEIGHT = 600, 400
PANEL = 70
"""Height of the panel of the weight, below the closes."""

RENDERED_BARS = 250
INK, PALE, LONG, SHORT = (31, 35, 40), (222, 226, 231), (0, 158, 115), (213, 94, 0)


def draw_account(close: Tensor, begin: int, weight: float, log_equity: float) -> Tensor:
    """Draw one bar of an episode, uint8 `[400, 600, 3]`.

    Args:
        close: log closes of the last bars, the newest last.
        begin: index in `close` of the first bar of the period; below 0 if it is not shown.
        weight: held, in [-1, 1].   log_equity: of the account since the episode began.
    """
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(16)
    low, high = float(close.min()), float(close.max())
    floor = HEIGHT - PANEL - 10

    def pixel(index: int, value: float) -> tuple[float, float]:
        across = 10 + (WIDTH - 20) * index / max(1, RENDERED_BARS - 1)
        return across, 30 + (floor - 30) * (1 - (value - low) / max(high - low, 1e-9))

    if begin > 0:
        across, _ = pixel(begin, low)
        draw.line((across, 30, across, floor), fill=PALE, width=2)
    draw.line([pixel(index, float(value)) for index, value in enumerate(close)], fill=INK, width=2)
    middle = HEIGHT - PANEL // 2 + 14
    draw.line((10, middle, WIDTH - 10, middle), fill=PALE, width=2)
    colour = LONG if weight > 0 else SHORT
    end = WIDTH / 2 + weight * (WIDTH / 2 - 10)
    draw.rectangle((min(WIDTH / 2, end), middle - 10, max(WIDTH / 2, end), middle + 10), fill=colour)
    draw.text((10, 8), f"close {math.exp(float(close[-1])):,.2f}", fill=INK, font=font)
    draw.text((180, 8), f"equity {math.exp(log_equity):.3f}", fill=INK, font=font)
    draw.text((10, HEIGHT - PANEL + 4), f"weight {weight:+.2f}  (short - cash - long)", fill=INK, font=font)
    return torch.from_numpy(np.asarray(image).copy())
