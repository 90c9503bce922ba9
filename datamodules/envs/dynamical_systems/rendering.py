"""Draw a vector field with the state in it."""

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

SIDE = 400
ARROWS = 17
"""Arrows along a side; their length grows with the root of the speed, the longest is as long as their distance."""

MARGIN = 0.25
"""Margin around the box of interest, as a fraction of its sides."""

GREY, BOX, STATE = (150, 156, 165), (214, 218, 224), (213, 94, 0)


def draw_field(field: Callable[[Tensor], Tensor], x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Draw the plane of the first two dimensions through the state, uint8 `[400, 400, 3]`.

    Args:
        field: velocities `[N, D]` of states `[N, D]`.   x: state `[D]`.   low, high: corners of the box of interest.
    """
    plane = slice(0, 2) if len(x) > 1 else slice(0, 1)
    margin = MARGIN * (high - low)[plane]
    first, last = low[plane] - margin, high[plane] + margin

    def pixel(points: Tensor) -> list[tuple[float, float]]:
        share = (points - first) / (last - first)
        across = share if share.shape[-1] == 2 else torch.cat([share, torch.full_like(share, 0.5)], -1)
        return [(float(a) * SIDE, (1 - float(b)) * SIDE) for a, b in across.tolist()]

    axes = [torch.linspace(float(a), float(b), ARROWS) for a, b in zip(first, last, strict=True)]
    points = torch.cartesian_prod(*axes).view(-1, len(axes))
    states = x.repeat(len(points), 1)
    states[:, plane] = points
    velocity = field(states)[:, plane]
    reach = (last - first) / ARROWS
    speed = (velocity / reach).norm(dim=-1, keepdim=True).clamp(min=1e-9)
    scaled = 0.9 * velocity / speed * (speed / speed.max()).sqrt()
    image = Image.new("RGB", (SIDE, SIDE), "white")
    draw = ImageDraw.Draw(image)
    (left, bottom), (right, top) = pixel(torch.stack([low[plane], high[plane]]))
    draw.rectangle((left, min(top, bottom), right, max(top, bottom)), outline=BOX, width=2)
    for start, end in zip(pixel(points), pixel(points + scaled), strict=True):
        draw.line((*start, *end), fill=GREY, width=2)
        draw.ellipse((end[0] - 2, end[1] - 2, end[0] + 2, end[1] + 2), fill=GREY)
    ((across, down),) = pixel(x[plane].unsqueeze(0))
    across, down = min(max(across, 0), SIDE), min(max(down, 0), SIDE)
    draw.ellipse((across - 8, down - 8, across + 8, down + 8), fill=STATE)
    return torch.from_numpy(np.asarray(image).copy())
