"""MountainCar and MountainCarContinuous: drive out of a valley with an engine that is too weak for its slope."""

import math
from itertools import pairwise

import torch
from torch import Tensor

from datamodules.envs.classic_control.base import ClassicControlEnv, Motion
from datamodules.envs.classic_control.rendering import ASPECT, Segment

LEFT_END, RIGHT_END = -1.2, 0.6
LARGEST_SPEED = 0.07
GRAVITY = 0.0025


class MountainCar(ClassicControlEnv):
    """MountainCar-v0 of Gymnasium: reward -1 for every step until the car reaches position 0.5.

    Observation: position and velocity, float32 `[2]`. Actions: 0 accelerates to the left, 1 not at all, 2 to the right.

    Args:
        time_limit: steps after which an episode is truncated; None never truncates.

    Source: Moore 1990, "Efficient memory-based learning for robot control".
    """

    variables = ("position", "velocity")
    start_low, start_high = (-0.6, 0.0), (-0.4, 0.0)
    obs_low, obs_high = (LEFT_END, -LARGEST_SPEED), (RIGHT_END, LARGEST_SPEED)
    actions = 3
    goal = 0.5
    power = 0.001

    def __init__(self, time_limit: int | None = 200) -> None:
        super().__init__(time_limit)

    def move(self, motion: Motion, action: Tensor) -> tuple[Motion, Tensor, Tensor]:
        """Accelerate and move the car."""
        after, reached = self.drive(motion, action - 1)
        return after, torch.full_like(after[0], -1.0), reached

    def drive(self, motion: Motion, push: Tensor) -> tuple[Motion, Tensor]:
        """Return the variables after a step with pushes `[B]` in [-1, 1], and whether the car reached the goal."""
        position, velocity = motion
        velocity = velocity + self.power * push - GRAVITY * torch.cos(3 * position)
        velocity = velocity.clamp(-LARGEST_SPEED, LARGEST_SPEED)
        position = position + velocity
        velocity = torch.where((position <= LEFT_END) & (velocity < 0), 0.0, velocity)
        position = position.clamp(LEFT_END, RIGHT_END)
        return (position, velocity), (position >= self.goal) & (velocity >= 0)

    def scene(self, motion: list[float]) -> list[Segment]:
        """Return the slope, the flag and the car."""
        ends = [LEFT_END + (RIGHT_END - LEFT_END) * part / 40 for part in range(41)]
        slope = [Segment(*place(left), *place(right), 0.01, "=") for left, right in pairwise(ends)]
        (x, y), (flag, foot) = place(motion[0]), place(self.goal)
        return [
            *slope,
            Segment(flag, foot, flag, foot + 0.15, 0.01, ">"),
            Segment(x - 0.03, y + 0.04, x + 0.03, y + 0.04, 0.06, "o"),
        ]


class MountainCarContinuous(MountainCar):
    """MountainCarContinuous-v0 of Gymnasium: reward 100 at position 0.45, where the episode ends, less the energy used.

    reward = 100 [reached] - 0.1 action^2

    Observation as `MountainCar`. Action: acceleration `[1]`, clipped to [-1, 1].

    Args:
        time_limit: steps after which an episode is truncated; None never truncates.

    Source: Moore 1990, "Efficient memory-based learning for robot control", with Gymnasium's continuous action.
    """

    actions = 0
    goal = 0.45
    power = 0.0015

    def __init__(self, time_limit: int | None = 999) -> None:
        super().__init__(time_limit)

    def move(self, motion: Motion, action: Tensor) -> tuple[Motion, Tensor, Tensor]:
        """Accelerate and move the car."""
        push = action[:, 0]
        after, reached = self.drive(motion, push.clamp(-1, 1))
        return after, 100.0 * reached - 0.1 * push.square(), reached


def place(position: float) -> tuple[float, float]:
    """Return where a position on the slope is in the picture."""
    across = (position - LEFT_END) / (RIGHT_END - LEFT_END)
    return ASPECT * across, 0.1 + 0.6 * (0.45 * math.sin(3 * position) + 0.55)
