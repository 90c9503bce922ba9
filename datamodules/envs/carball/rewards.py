"""Terms of the reward, and their default weights."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.envs.carball.field import BACK_WALL
from datamodules.envs.carball.physics import MAX_CAR_SPEED, Ball, Cars, Controls

REWARDS = {
    "goal": 10.0,
    "concede": -10.0,
    "touch": 0.1,
    "aerial_touch": 0.5,
    "closer": 0.01,
    "ball_to_goal": 0.01,
    "boost_waste": -0.01,
    "boost_starve": -0.1,
    "idle": -0.05,
}
"""Default weight of every term; see `reward_terms`."""

IDLE_STEPS = 150
AERIAL_HEIGHT = 300.0
"""Height of the ball's centre above which a touch is aerial."""


class Change(NamedTuple):
    """One step: cars and ball before and after it, and the events of it.

    boost_used, touches: `[E, A]`.   idle_steps: steps since a car's last touch, `[E, A]`.
    scored: +1 where blue scored, -1 where orange did, else 0, `[E]`.
    """

    cars_before: Cars
    ball_before: Ball
    cars: Cars
    ball: Ball
    controls: Controls
    boost_used: Tensor
    touches: Tensor
    idle_steps: Tensor
    scored: Tensor


def reward_terms(change: Change, teams: Tensor, step_seconds: float) -> dict[str, Tensor]:
    """Return every term of the reward before weighting, `[E, A]` each.

    goal, concede: 1 in the step in which the car's team, or the other one, scores.   touch: 1 if the car touches the
    ball.   aerial_touch: 1 if it does so above `AERIAL_HEIGHT`.   closer: decrease of its distance to the ball, in
    units of the way of a car at full speed.   ball_to_goal: increase of the ball's speed towards the other goal's
    centre, in units of a car's full speed.   boost_waste: 1 if it uses boost at full speed.   boost_starve: 1 if it
    asks for boost with an empty tank.   idle: 1 from `IDLE_STEPS` steps without a touch of its own on.

    Args:
        teams: 1 for blue and -1 for orange, `[A]`.   step_seconds: duration of a step.
    """
    cars, ball, touches = change.cars, change.ball, change.touches.float()
    won = change.scored.unsqueeze(1) * teams
    high = (ball.position[:, 2:] > AERIAL_HEIGHT).float()
    before = (change.cars_before.position - change.ball_before.position.unsqueeze(1)).norm(dim=-1)
    after = (cars.position - ball.position.unsqueeze(1)).norm(dim=-1)
    faster = speed_to_goal(ball, teams) - speed_to_goal(change.ball_before, teams)
    full = cars.velocity.norm(dim=-1) >= 0.995 * MAX_CAR_SPEED
    return {
        "goal": (won > 0).float(),
        "concede": (won < 0).float(),
        "touch": touches,
        "aerial_touch": touches * high,
        "closer": (before - after) / (MAX_CAR_SPEED * step_seconds),
        "ball_to_goal": faster / MAX_CAR_SPEED,
        "boost_waste": ((change.boost_used > 0) & full).float(),
        "boost_starve": (change.controls.boost & (change.boost_used == 0)).float(),
        "idle": (change.idle_steps >= IDLE_STEPS).float(),
    }


def speed_to_goal(ball: Ball, teams: Tensor) -> Tensor:
    """Return the ball's speed towards the centre of the goal that each car attacks, on the floor, `[E, A]`."""
    x, y = ball.position[:, :1], ball.position[:, 1:2]
    across, along = -x, teams * BACK_WALL - y
    distance = torch.hypot(across.expand_as(along), along).clamp(min=1)
    return (ball.velocity[:, :1] * across + ball.velocity[:, 1:2] * along) / distance


def resolve_rewards(changes: dict[str, float]) -> dict[str, float]:
    """Return the weights of all terms, the defaults with changes.

    Raises: ConfigurationError for a term that does not exist, and for a weight that is no finite number.
    """
    if not isinstance(changes, dict):
        raise ConfigurationError(f"Carball's rewards are {changes!r}; give weights by term, such as {{touch: 0.1}}.")
    if unknown := sorted({*changes} - {*REWARDS}):
        raise ConfigurationError(f"Carball has no reward {unknown[0]!r}; choose from {', '.join(REWARDS)}.")
    for name, weight in changes.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
            raise ConfigurationError(f"Carball's reward {name} is {weight!r}; it must be a finite number.")
    return REWARDS | changes
