"""Pendulum: swing a pendulum up with a torque that is too weak to lift it, and hold it."""

import math

import torch
from torch import Tensor

from datamodules.core.types import State
from datamodules.envs.classic_control.base import ClassicControlEnv, Motion
from datamodules.envs.classic_control.rendering import ASPECT, Segment

GRAVITY = 10.0
SECONDS = 0.05
LARGEST_SPEED = 8.0


class Pendulum(ClassicControlEnv):
    """Pendulum-v1 of Gymnasium: a pendulum of 1 m and 1 kg that never terminates.

    reward = -(angle^2 + 0.1 velocity^2 + 0.001 torque^2), angle in [-pi, pi), 0 upright, before the step

    Observation: cosine and sine of the angle, velocity (rad/s), float32 `[3]`. Action: torque `[1]` (N m), clipped to
    [-2, 2].

    Args:
        time_limit: steps after which an episode is truncated; None never truncates.
    """

    variables = ("angle", "velocity")
    start_low, start_high = (-math.pi, -1.0), (math.pi, 1.0)
    obs_low, obs_high = (-1.0, -1.0, -LARGEST_SPEED), (1.0, 1.0, LARGEST_SPEED)
    actions = 0
    largest_action = 2.0

    def __init__(self, time_limit: int | None = 200) -> None:
        super().__init__(time_limit)

    def move(self, motion: Motion, action: Tensor) -> tuple[Motion, Tensor, Tensor]:
        """Integrate the equations of motion over one step; the angle uses the new velocity."""
        angle, velocity = motion
        torque = action[:, 0].clamp(-self.largest_action, self.largest_action)
        upright = torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
        cost = upright.square() + 0.1 * velocity.square() + 0.001 * torque.square()
        velocity = velocity + (1.5 * GRAVITY * torch.sin(angle) + 3.0 * torque) * SECONDS
        velocity = velocity.clamp(-LARGEST_SPEED, LARGEST_SPEED)
        after = torch.add(angle, velocity, alpha=SECONDS), velocity
        return after, -cost, torch.zeros_like(angle, dtype=torch.bool)

    def observation(self, state: State) -> Tensor:
        """Return cosine and sine of the angle, and the velocity, `[B, 3]`."""
        angle, velocity = self.motion(state)
        return torch.stack((torch.cos(angle), torch.sin(angle), velocity), 1)

    def scene(self, motion: list[float]) -> list[Segment]:
        """Return the pendulum and its axle."""
        x, y, angle = ASPECT / 2, 0.5, motion[0]
        return [
            Segment(x, y, x - 0.4 * math.sin(angle), y + 0.4 * math.cos(angle), 0.06, "|"),
            Segment(x, y, x, y, 0.04, "o"),
        ]
