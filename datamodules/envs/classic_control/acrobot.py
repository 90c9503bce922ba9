"""Acrobot: swing the free end of two links above a line, with a torque at the joint between them."""

import math

import torch
from torch import Tensor

from datamodules.core.types import State
from datamodules.envs.classic_control.base import ClassicControlEnv, Motion
from datamodules.envs.classic_control.rendering import ASPECT, Segment

GRAVITY = 9.8
SECONDS = 0.2
CENTRE = 0.5
"""Metres from a link's joint to its centre of mass; links are 1 m long, weigh 1 kg and have inertia 1 kg m^2."""

FASTEST = (4 * math.pi, 9 * math.pi)


class Acrobot(ClassicControlEnv):
    """Acrobot-v1 of Gymnasium: reward -1 for every step but the one that reaches the height of one link, the end.

    Observation: cosine and sine of the first link's angle (0 hanging down), cosine and sine of the second's relative to
    the first, their velocities (rad/s), float32 `[6]`. Actions: a torque of -1, 0 or 1 N m at the joint.

    Args:
        time_limit: steps after which an episode is truncated; None never truncates.

    Source: Sutton 1996, "Generalization in reinforcement learning: successful examples using sparse coarse coding", in
    the form of Sutton and Barto's book; one Runge-Kutta step of 0.2 s as in Gymnasium.
    """

    variables = ("upper_angle", "lower_angle", "upper_velocity", "lower_velocity")
    start_low, start_high = (-0.1,) * 4, (0.1,) * 4
    obs_high = (1.0, 1.0, 1.0, 1.0, *FASTEST)
    obs_low = tuple(-bound for bound in obs_high)
    actions = 3

    def __init__(self, time_limit: int | None = 500) -> None:
        super().__init__(time_limit)

    def move(self, motion: Motion, action: Tensor) -> tuple[Motion, Tensor, Tensor]:
        """Integrate the equations of motion over one step of the fourth-order Runge-Kutta method."""
        torque = action.float() - 1
        first = derivative(motion, torque)
        second = derivative(shifted(motion, first, SECONDS / 2), torque)
        third = derivative(shifted(motion, second, SECONDS / 2), torque)
        fourth = derivative(shifted(motion, third, SECONDS), torque)
        rates = tuple(a + 2 * (b + c) + d for a, b, c, d in zip(first, second, third, fourth, strict=True))
        *angles, upper_speed, lower_speed = shifted(motion, rates, SECONDS / 6)
        upper, lower = (torch.remainder(angle + math.pi, 2 * math.pi) - math.pi for angle in angles)
        upper_speed = upper_speed.clamp(-FASTEST[0], FASTEST[0])
        lower_speed = lower_speed.clamp(-FASTEST[1], FASTEST[1])
        reached = -torch.cos(upper) - torch.cos(lower + upper) > 1
        return (upper, lower, upper_speed, lower_speed), reached.float() - 1, reached

    def observation(self, state: State) -> Tensor:
        """Return cosine and sine of both angles, and the velocities, `[B, 6]`."""
        upper, lower, *speeds = self.motion(state)
        return torch.stack((torch.cos(upper), torch.sin(upper), torch.cos(lower), torch.sin(lower), *speeds), 1)

    def scene(self, motion: list[float]) -> list[Segment]:
        """Return the line to reach and the two links."""
        x, y, upper, lower = ASPECT / 2, 0.5, motion[0], motion[0] + motion[1]
        joint = x + 0.2 * math.sin(upper), y - 0.2 * math.cos(upper)
        end = joint[0] + 0.2 * math.sin(lower), joint[1] - 0.2 * math.cos(lower)
        return [
            Segment(0.0, y + 0.2, ASPECT, y + 0.2, 0.01, "="),
            Segment(x, y, *joint, 0.04, "#"),
            Segment(*joint, *end, 0.04, "o"),
        ]


def shifted(motion: Motion, rates: Motion, seconds: float) -> Motion:
    """Return the variables after moving at constant rates."""
    return tuple(torch.add(value, rate, alpha=seconds) for value, rate in zip(motion, rates, strict=True))


def derivative(motion: Motion, torque: Tensor) -> Motion:
    """Return the time derivatives of angles and velocities `[B]` under a torque `[B]` at the joint."""
    upper, lower, upper_speed, lower_speed = motion
    cosine, sine = torch.cos(lower), torch.sin(lower)
    whole = 2 * CENTRE**2 + 1 + 2 * CENTRE * cosine + 2
    coupling = CENTRE**2 + CENTRE * cosine + 1
    lower_pull = CENTRE * GRAVITY * torch.sin(upper + lower)
    turning = CENTRE * sine * lower_speed * (lower_speed + 2 * upper_speed)
    upper_pull = (CENTRE + 1) * GRAVITY * torch.sin(upper) + lower_pull - turning
    share = coupling / whole
    push = torque + share * upper_pull - CENTRE * sine * upper_speed.square() - lower_pull
    lower_turned = push / (CENTRE**2 + 1 - coupling * share)
    upper_turned = -(coupling * lower_turned + upper_pull) / whole
    return upper_speed, lower_speed, upper_turned, lower_turned
