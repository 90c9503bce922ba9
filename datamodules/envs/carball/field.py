"""Constants of the field, the starts of an episode, and the boost pads.

Lengths are in units (uu, about 1 cm), times in seconds. The origin is at the centre of the floor; y leads to the goal
of the team orange, z upward. Blue attacks towards +y, orange towards -y.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

SIDE_WALL, BACK_WALL, CEILING = 4096.0, 5120.0, 2044.0
GOAL_HALF_WIDTH = 893.0
BALL_RADIUS, CAR_HEIGHT = 92.75, 17.0
"""Height of the centre of a resting ball, and of a car on the ground."""

MODES = {"1v0": (1, 0), "1v1": (1, 1), "1v2": (1, 2), "2v2": (2, 2)}
"""Cars of blue and of orange."""

PARKED = (0.0, 0.0, 1e5)
"""Position of cars that a stage of a curriculum lacks: nothing is near it."""

SMALL_PADS = (
    (0, -4240), (-1792, -4184), (1792, -4184), (-940, -3308), (940, -3308), (0, -2816), (-3584, -2484), (3584, -2484),
    (-1788, -2300), (1788, -2300), (-2048, -1036), (0, -1024), (2048, -1036), (-1024, 0),
)  # fmt: skip
"""Positions of half of the small pads; each has one opposite, rotated by half a turn about the centre."""

BIG_PADS = ((-3072, -4096), (3072, -4096), (-3584, 0))
"""Positions of half of the big pads."""

PADS = 2 * (len(SMALL_PADS) + len(BIG_PADS))
MAX_BOOST, START_BOOST = 100.0, 33.3
SMALL_PAD, BIG_PAD = (12.0, 4.0, 144.0), (100.0, 10.0, 208.0)
"""Boost that a pad gives, seconds until it is full again, and its radius."""

KICKOFFS = (
    (-2048, -2560, math.pi / 4), (2048, -2560, 3 * math.pi / 4), (-256, -3840, math.pi / 2),
    (256, -3840, math.pi / 2), (0, -4608, math.pi / 2),
)  # fmt: skip
"""Positions and yaw of blue's cars at a kickoff; those of orange are rotated by half a turn."""


def pad_table() -> Tensor:
    """Return x, y, boost, seconds and radius of every pad, `[34, 5]`; pad `i + 17` is opposite of pad i."""
    half = [(x, y, *SMALL_PAD) for x, y in SMALL_PADS] + [(x, y, *BIG_PAD) for x, y in BIG_PADS]
    return torch.tensor(half + [(-x, -y, *rest) for x, y, *rest in half])


def kickoff_table(teams: Tensor) -> Tensor:
    """Return x, y and yaw of every car for each kickoff, `[5, A, 3]`; teammates take the next position of the list.

    Args:
        teams: 1 for cars of blue and -1 for those of orange, `[A]`, blue first.
    """
    kickoffs, blue = torch.tensor(KICKOFFS), int((teams > 0).sum())
    number = torch.cat((torch.arange(blue), torch.arange(len(teams) - blue)))
    place = kickoffs[(torch.arange(len(kickoffs))[:, None] + number) % len(kickoffs)]
    turned = torch.stack((teams, teams, torch.ones_like(teams)), 1)
    return place * turned + torch.tensor([0.0, 0.0, math.pi]) * (teams < 0).float()[:, None]


def presence_table(mode: str, stages: Sequence[str]) -> Tensor:
    """Return which cars of a mode play in each of the stages, the first ones of each team, bool `[S, A]`."""
    number = torch.tensor([*range(MODES[mode][0]), *range(MODES[mode][1])])
    orange = torch.arange(len(number)) >= MODES[mode][0]
    return number < torch.tensor([MODES[stage] for stage in stages])[:, orange.long()]


def random_start(noise: Tensor, cars: int, aerial: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return position and velocity of the ball, `[E, 3]`, position `[E, A, 3]` and yaw `[E, A]` of the cars.

    Args:
        noise: uniforms `[E, 6 + 3 A]`.   cars: A.   aerial: place the ball at a height of 600 to 1500 and throw it up.
    """
    ball, car = noise[:, :6], noise[:, 6 : 6 + 3 * cars].unflatten(1, (cars, 3))
    rest = torch.full_like(ball[:, :1], BALL_RADIUS)
    height = 600 + 900 * ball[:, 2:3] if aerial else rest
    position = torch.cat((6000 * ball[:, :1] - 3000, 8000 * ball[:, 1:2] - 4000, height), 1)
    upward = 300 * ball[:, 5:6] if aerial else torch.zeros_like(rest)
    velocity = torch.cat((1000 * (2 * ball[:, 3:5] - 1), upward), 1)
    x, y = 6000 * car[..., 0] - 3000, 8000 * car[..., 1] - 4000
    place = torch.stack((x, y, torch.full_like(x, CAR_HEIGHT)), 2)
    return position, velocity, place, math.pi * (2 * car[..., 2] - 1)
