"""Chaser: a scripted opponent that drives to the ball and hits it towards the other goal."""

import torch
from torch import Tensor, nn

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput, PolicyOutput, SpaceSpec, State, require_tensor
from datamodules.envs.carball.observation import OBS_SIZE, PARTS

AIMED, SHARP = 0.1, 1.0
"""Angles between nose and target, in radians: below the first it boosts, above the second the turn is sharp."""

CLEARANCE = 0.1
"""Distance from the ball at which it drives around it, in units of the observation."""

SLOW, FAST, FULL = 0.05, 0.4, 0.95
"""Speeds, relative to the largest: in sharp turns it reverses below the first and brakes above the second, and it does
not boost above the third."""

SEEN = ("position", "velocity", "forward", "left", "ball_position", "goal_from_ball")
"""Parts of the observation that it uses."""


class Chaser(nn.Module):
    """Policy of Car-ball that drives to the ball from the side of its own goal (`data.opponents`).

    It aims behind the ball, seen from the goal that it attacks, the farther behind the farther away it is; on the wrong
    side of the ball it drives around it. It boosts when its nose points to its target, and neither jumps nor fetches
    boost.

    Args:
        spaces: observation and action space of an agent.

    Raises: ConfigurationError if they are not those of Car-ball.
    """

    def __init__(self, spaces: SpaceSpec):
        super().__init__()
        self.discrete = spaces["action_type"] == "multidiscrete"
        if spaces["obs_shape"] != (OBS_SIZE,) or len(spaces["action_sizes"] or spaces["action_low"]) != 8:
            raise ConfigurationError(
                "Chaser plays Car-ball only: give another opponent, or leave data.append_obs out of Carball-v0."
            )

    def initial_state(self, batch: int) -> State:
        """Return `{}`: it is memoryless."""
        return {}

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Return no random numbers, `[*shape, 0]`."""
        return torch.empty(*shape, 0, device=generator.device)

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        """Return the action of every row, `[B, 8]`; neither `noise` nor `greedy` changes it."""
        obs = require_tensor(inputs.obs)
        parts = {name: obs[:, PARTS[name]] for name in SEEN}
        position, ball = parts["position"][:, :2], parts["ball_position"][:, :2]
        goal = nn.functional.normalize(parts["goal_from_ball"][:, :2], dim=1)
        to_ball = ball - position
        distance, behind = to_ball.norm(dim=1, keepdim=True), (to_ball * goal).sum(1, keepdim=True)
        across = nn.functional.normalize(behind * goal - to_ball, dim=1)  # from the line of the shot to the car
        around = to_ball - goal * CLEARANCE + across * CLEARANCE
        target = torch.where(behind > 0, to_ball - goal * (0.5 * distance), around)
        ahead = (target * parts["forward"][:, :2]).sum(1)
        aside = (target * parts["left"][:, :2]).sum(1)
        angle, speed = torch.atan2(aside, ahead), (parts["velocity"] * parts["forward"]).sum(1)
        turn = -angle.sign() * torch.where(speed < 0, -1.0, 1.0)
        steer = torch.where(angle.abs() > AIMED / 2, turn, 0.0)
        sharp = angle.abs() > SHARP
        throttle = torch.where(sharp & ((speed > FAST) | (speed < SLOW)), -1.0, 1.0)
        boosts = ((angle.abs() < AIMED) & (speed < FULL)).float()
        none = torch.zeros_like(steer)
        action = torch.stack((throttle, steer, none, none, none, none, boosts, sharp.float()), 1)
        if self.discrete:
            action = torch.cat((action[:, :5] + 1, action[:, 5:]), 1).long()
        return PolicyOutput(action, {}), {}
