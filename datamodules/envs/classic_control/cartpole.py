"""CartPole: balance a pole on a cart that is pushed to the left or the right."""

import math

import torch
from torch import Tensor

from datamodules.envs.classic_control.base import ClassicControlEnv, Motion
from datamodules.envs.classic_control.rendering import ASPECT, Segment

GRAVITY = 9.8
CART_MASS, POLE_MASS = 1.0, 0.1
TOTAL_MASS = CART_MASS + POLE_MASS
HALF_LENGTH = 0.5
FORCE = 10.0
SECONDS = 0.02
LARGEST_X = 2.4
LARGEST_ANGLE = 12 * math.pi / 180


class CartPole(ClassicControlEnv):
    """CartPole-v1 of Gymnasium: reward 1 for every step until the pole falls or the cart leaves the track.

    Observation: position (m), velocity (m/s), angle of the pole (rad, 0 upright) and its velocity (rad/s), float32
    `[4]`. Actions: 0 pushes to the left, 1 to the right. An episode terminates beyond 2.4 m or 12 degrees.

    Args:
        time_limit: steps after which an episode is truncated; None never truncates.

    Source: Barto, Sutton and Anderson 1983, doi:10.1109/TSMC.1983.6313077, as corrected by Florian 2007; explicit
    Euler steps of 0.02 s as in Gymnasium.
    """

    variables = ("position", "velocity", "angle", "angular_velocity")
    start_low, start_high = (-0.05,) * 4, (0.05,) * 4
    obs_high = (2 * LARGEST_X, math.inf, 2 * LARGEST_ANGLE, math.inf)
    obs_low = tuple(-bound for bound in obs_high)
    actions = 2

    def __init__(self, time_limit: int | None = 500) -> None:
        super().__init__(time_limit)

    def move(self, motion: Motion, action: Tensor) -> tuple[Motion, Tensor, Tensor]:
        """Integrate the equations of motion over one step."""
        position, velocity, angle, turning = motion
        cosine, sine = torch.cos(angle), torch.sin(angle)
        push = torch.add(action * (2 * FORCE / TOTAL_MASS), -FORCE / TOTAL_MASS)
        pushed = torch.addcmul(push, turning * turning, sine, value=POLE_MASS * HALF_LENGTH / TOTAL_MASS)
        inertia = HALF_LENGTH * (4 / 3 - POLE_MASS / TOTAL_MASS * (cosine * cosine))
        turned = torch.addcmul(GRAVITY * sine, cosine, pushed, value=-1) / inertia
        speeded = torch.addcmul(pushed, turned, cosine, value=-POLE_MASS * HALF_LENGTH / TOTAL_MASS)
        rates = (velocity, speeded, turning, turned)
        after = tuple(torch.add(value, rate, alpha=SECONDS) for value, rate in zip(motion, rates, strict=True))
        terminated = (after[0].abs() > LARGEST_X) | (after[2].abs() > LARGEST_ANGLE)
        return after, torch.ones_like(position), terminated

    def scene(self, motion: list[float]) -> list[Segment]:
        """Return the track, the cart and the pole."""
        x, angle = ASPECT / 2 * (1 + motion[0] / LARGEST_X), motion[2]
        return [
            Segment(0.0, 0.2, ASPECT, 0.2, 0.01, "="),
            Segment(x - 0.08, 0.23, x + 0.08, 0.23, 0.08, "#"),
            Segment(x, 0.26, x + 0.5 * math.sin(angle), 0.26 + 0.5 * math.cos(angle), 0.04, "o"),
        ]
