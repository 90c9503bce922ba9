"""The 180 numbers that a car observes, from the view of its team: orange sees the field rotated by half a turn."""

from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.envs.carball.field import BACK_WALL, BALL_RADIUS, MAX_BOOST, PADS
from datamodules.envs.carball.physics import GRAVITY, MAX_CAR_SPEED, Ball, Cars, axes, on_ground

OTHERS = 3
"""Slots for other cars: a teammate, then two opponents."""

OTHER_SIZE = 27
PREDICTED_SECONDS = (0.25, 0.5, 1.0, 2.0)
LONGEST_REFILL = 10.0

SIZES = {
    "position": 3, "velocity": 3, "forward": 3, "left": 3, "up": 3, "boost": 1, "on_ground": 1, "speed": 1, "idle": 1,
    "last_action": 8, "ball_position": 3, "ball_velocity": 3, "ball_seen": 3, "ball_velocity_seen": 3,
    "ball_distance": 1, "ball_path": 3 * len(PREDICTED_SECONDS), "goal_from_ball": 3, "own_goal_from_ball": 3,
    "goal_seen": 3, "own_goal_seen": 3, "pads": PADS, "time_left": 1, "others": OTHERS * OTHER_SIZE,
}  # fmt: skip
"""Parts of the observation in their order, with their numbers of elements.

Positions are divided by 5120, velocities by 2300. Parts named `seen` are in the car's own frame: forward, left, up.
`ball_path` is where the ball is in 0.25, 0.5, 1 and 2 s without walls. `pads`: 1 if full, else 1 - seconds left / 10.
Each of `others`: whether there is one, whether it is a teammate, position, velocity, forward, up, boost, on the
ground, position and velocity as seen, its distance to the ball and to this car, and the ball from its position.
"""

OBS_SIZE = sum(SIZES.values())
ENDS = dict(zip(SIZES, accumulate(SIZES.values()), strict=True))
PARTS = {name: slice(ENDS[name] - size, ENDS[name]) for name, size in SIZES.items()}
"""Where each part is in the observation."""


class Slots(NamedTuple):
    """The other cars that each car observes.

    cars: their numbers, `[A, 3]`, 0 in empty slots.   filled: whether there is such a car, bool `[A, 3]`.
    teammate: bool `[A, 3]`.
    """

    cars: Tensor
    filled: Tensor
    teammate: Tensor


def make_slots(teams: Tensor) -> Slots:
    """Return the slots: a teammate first, then two opponents."""
    index, filled = (
        torch.zeros(len(teams), OTHERS, dtype=torch.int64),
        torch.zeros(len(teams), OTHERS, dtype=torch.bool),
    )
    for car, team in enumerate(teams.tolist()):
        mates = [other for other, own in enumerate(teams.tolist()) if own == team and other != car]
        opponents = [other for other, own in enumerate(teams.tolist()) if own != team]
        for slot, other in [*enumerate(mates), *enumerate(opponents, start=1)]:
            index[car, slot], filled[car, slot] = other, True
    return Slots(index, filled, torch.arange(OTHERS).eq(0).expand(len(teams), -1))


def pad_order(teams: Tensor) -> Tensor:
    """Return the order in which each car sees the pads, `[A, 34]`: opposite ones change places for orange."""
    half = torch.arange(PADS).roll(PADS // 2)
    return torch.where(teams[:, None] > 0, torch.arange(PADS), half)


def team_view(vector: Tensor, teams: Tensor) -> Tensor:
    """Return vectors `[E, A, ..., 3]` as the cars' teams see them."""
    turned = torch.stack((teams, teams, torch.ones_like(teams)), 1)
    return vector * turned.view(len(teams), *[1] * (vector.dim() - 3), 3)


def observe(cars: Cars, ball: Ball, rest: dict[str, Tensor], teams: Tensor, slots: Slots, order: Tensor) -> Tensor:
    """Return the observations `[E, A, 180]`.

    Args:
        rest: `idle` and `time_left`, `[E, A]` and `[E]`, in [0, 1], `last_action` `[E, A, 8]`, and `pads`, seconds
            until each is full, `[E, 34]`.
        teams: 1 for blue and -1 for orange, `[A]`.   slots, order: from `make_slots` and `pad_order`.
    """
    number = len(teams)
    frame = torch.stack([team_view(axis, teams) for axis in axes(cars.rotation)], 2)
    position, velocity = team_view(cars.position / BACK_WALL, teams), team_view(cars.velocity / MAX_CAR_SPEED, teams)
    centre = torch.zeros_like(position[..., :1])
    goal, own_goal = (torch.cat((centre, centre + end, centre + BALL_RADIUS / BACK_WALL), -1) for end in (1, -1))
    balls = (part.unsqueeze(1).expand(-1, number, -1) for part in ball)
    ball_world, ball_motion = (team_view(part, teams) for part in balls)
    ball_position, ball_velocity = ball_world / BACK_WALL, ball_motion / MAX_CAR_SPEED
    to_ball = ball_position - position
    speed, ground = velocity.norm(dim=-1), on_ground(cars.position).float()
    columns = [
        position, velocity, frame.flatten(2), cars.boost.unsqueeze(-1) / MAX_BOOST, ground.unsqueeze(-1),
        speed.unsqueeze(-1), rest["idle"].unsqueeze(-1), rest["last_action"], ball_position, ball_velocity,
        seen(to_ball, frame), seen(ball_velocity - velocity, frame), to_ball.norm(dim=-1, keepdim=True),
        _ball_path(ball_world, ball_motion), goal - ball_position, own_goal - ball_position,
        seen(goal - position, frame), seen(own_goal - position, frame), _pads(rest["pads"], order),
        rest["time_left"].unsqueeze(1).expand(-1, number).unsqueeze(-1),
    ]  # fmt: skip
    own = (position, velocity, frame, cars.boost / MAX_BOOST, ground)
    return torch.cat([*columns, _others(own, ball_position, slots)], -1)


def seen(vector: Tensor, frame: Tensor) -> Tensor:
    """Return vectors `[..., 3]` in frames `[..., 3 axes, 3]`."""
    return (frame * vector.unsqueeze(-2)).sum(-1)


def _ball_path(position: Tensor, velocity: Tensor) -> Tensor:
    """Return where the ball is after `PREDICTED_SECONDS` of free flight above the floor, `[E, A, 12]`."""
    points = []
    for seconds in PREDICTED_SECONDS:
        x, y, z = (position + velocity * seconds).unbind(-1)
        z = (z - GRAVITY * seconds**2 / 2).clamp(min=BALL_RADIUS)
        points.append(torch.stack((x, y, z), -1) / BACK_WALL)
    return torch.cat(points, -1)


def _pads(timer: Tensor, order: Tensor) -> Tensor:
    """Return how full the pads are, `[E, A, 34]`."""
    return 1 - timer.index_select(1, order.flatten()).unflatten(1, order.shape) / LONGEST_REFILL


def _others(own: tuple[Tensor, Tensor, Tensor, Tensor, Tensor], ball_position: Tensor, slots: Slots) -> Tensor:
    """Return what each car observes of the others, `[E, A, 81]`, zero in empty slots."""
    position, velocity, frame, boost, ground = own
    index, shape = slots.cars.flatten(), slots.cars.shape

    def chosen(part: Tensor) -> Tensor:
        return part.index_select(1, index).unflatten(1, shape)

    same = torch.where(slots.teammate, 1.0, -1.0).unsqueeze(-1)  # opponents see the field rotated
    turned = torch.cat((same, same, torch.ones_like(same)), -1)
    place, motion, forward, up = (
        chosen(part) * turned for part in (position, velocity, frame[:, :, 0], frame[:, :, 2])
    )
    from_me, own_frame = place - position.unsqueeze(2), frame.unsqueeze(2)
    to_ball = ball_position.unsqueeze(2) - place
    columns = [
        torch.ones_like(place[..., :1]), slots.teammate.float().unsqueeze(-1).expand_as(place[..., :1]), place, motion,
        forward, up, chosen(boost).unsqueeze(-1), chosen(ground).unsqueeze(-1), seen(from_me, own_frame),
        seen(motion - velocity.unsqueeze(2), own_frame), to_ball.norm(dim=-1, keepdim=True),
        from_me.norm(dim=-1, keepdim=True), to_ball,
    ]  # fmt: skip
    return (torch.cat(columns, -1) * slots.filled.unsqueeze(-1)).flatten(2)
