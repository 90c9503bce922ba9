"""Motion of cars and ball over one step, as pure functions of tensors.

E environments have A cars: vectors are `[E, A, 3]` or `[E, 3]`, numbers `[E, A]`. A car's rotation is its yaw
(anticlockwise from x), its pitch (nose up) and its roll (right side down), in radians. Cars do not collide.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from datamodules.envs.carball.field import (
    BACK_WALL,
    BALL_RADIUS,
    CAR_HEIGHT,
    CEILING,
    GOAL_HALF_WIDTH,
    MAX_BOOST,
    SIDE_WALL,
)

TICK_SECONDS = 0.008
GRAVITY = 650.0
BOUNCE = 0.6
"""Share of the speed towards a wall that a ball keeps."""

BOOST_ACCELERATION, BOOST_PER_SECOND = 991.667, 33.3
THROTTLE_ACCELERATION, FAST_THROTTLE_ACCELERATION, BRAKE_ACCELERATION = 1600.0, 160.0, 525.0
THROTTLE_SPEED = 1400.0
"""Forward speed from which throttle accelerates less."""

MAX_CAR_SPEED, MAX_BALL_SPEED = 2300.0, 6000.0
JUMP_SPEED = 500.0
TURN_RATE, TURN_SPEED, HANDBRAKE_TURN = 2.2, 500.0, 1.6
"""Yaw rate on the ground at `TURN_SPEED` and above, rad/s; its factor with the handbrake."""

YAW_RATE, PITCH_RATE, ROLL_RATE = 2.5, 3.0, 4.0
"""Rates in the air, rad/s."""

TOUCH_DISTANCE, HIT_SPEED = 200.0, 1.5
"""Distance below which a car hits the ball, and the ball's speed after it, relative to that of the car."""

PAD_HEIGHT = 165.0
"""Height below which a car collects boost pads."""


class Controls(NamedTuple):
    """Controls of every car `[E, A]`: the first five in [-1, 1] (steer, yaw and roll to the right), the others bool."""

    throttle: Tensor
    steer: Tensor
    pitch: Tensor
    yaw: Tensor
    roll: Tensor
    jump: Tensor
    boost: Tensor
    handbrake: Tensor


class Cars(NamedTuple):
    """Position, velocity and rotation of the cars `[E, A, 3]`, and their boost `[E, A]`."""

    position: Tensor
    velocity: Tensor
    rotation: Tensor
    boost: Tensor


class Ball(NamedTuple):
    """Position and velocity of the ball `[E, 3]`."""

    position: Tensor
    velocity: Tensor


def axes(rotation: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the unit vectors forward, left and up of rotations `[..., 3]`."""
    yaw, pitch, roll = rotation.unbind(-1)
    (cos_yaw, cos_pitch, cos_roll), (sin_yaw, sin_pitch, sin_roll) = (
        (function(yaw), function(pitch), function(roll)) for function in (torch.cos, torch.sin)
    )
    forward = torch.stack((cos_pitch * cos_yaw, cos_pitch * sin_yaw, sin_pitch), -1)
    left = torch.stack((-sin_yaw, cos_yaw, torch.zeros_like(yaw)), -1)
    up = torch.stack((-sin_pitch * cos_yaw, -sin_pitch * sin_yaw, cos_pitch), -1)
    cos_roll, sin_roll = cos_roll.unsqueeze(-1), sin_roll.unsqueeze(-1)
    return forward, left * cos_roll + up * sin_roll, up * cos_roll - left * sin_roll


def on_ground(position: Tensor) -> Tensor:
    """Return which cars are on the ground, bool `[E, A]`."""
    return position[..., 2] <= CAR_HEIGHT


def limited(velocity: Tensor, speed: float) -> Tensor:
    """Return velocities `[..., 3]` scaled down to at most this speed."""
    length = velocity.norm(dim=-1, keepdim=True)
    return velocity * (speed / length.clamp(min=speed))


def move_cars(cars: Cars, controls: Controls, seconds: float, walls: bool) -> tuple[Cars, Tensor]:
    """Move every car, with the boost that it has.

    Args:
        seconds: duration.   walls: whether the cars stay within the walls.

    Returns: the cars, and the boost that each used, `[E, A]`.
    """
    wanted = BOOST_PER_SECOND * seconds
    used = torch.where(controls.boost, cars.boost.clamp(max=wanted), 0.0)
    push = used * (BOOST_ACCELERATION * seconds / wanted)
    ground = on_ground(cars.position)
    rotation = torch.where(
        ground.unsqueeze(-1),
        _steered(cars, controls, seconds),
        _turned(cars.rotation, controls, seconds),
    )
    forward, left, _ = axes(rotation)
    driven = _driven(cars, controls, forward, left, push, seconds)
    flown = cars.velocity + forward * push.unsqueeze(-1)
    velocity = limited(torch.where(ground.unsqueeze(-1), driven, flown), MAX_CAR_SPEED)
    airborne = ~ground | controls.jump
    fall = torch.where(airborne, GRAVITY * seconds, 0.0)
    x, y, z = (cars.position + velocity * seconds).unbind(-1)
    x_speed, y_speed, z_speed = velocity.unbind(-1)
    z, z_speed = z - fall * (seconds / 2), z_speed - fall
    if walls:
        x_speed, y_speed = (
            torch.where((place.abs() >= wall) & (place * speed > 0), 0.0, speed)
            for place, speed, wall in ((x, x_speed, SIDE_WALL), (y, y_speed, BACK_WALL))
        )
        x, y = x.clamp(-SIDE_WALL, SIDE_WALL), y.clamp(-BACK_WALL, BACK_WALL)
    landed, hit = z <= CAR_HEIGHT, z >= CEILING
    z_speed = torch.where(landed, z_speed.clamp(min=0), torch.where(hit, z_speed.clamp(max=0), z_speed))
    z = z.clamp(CAR_HEIGHT, CEILING)
    level = torch.stack((torch.ones_like(z), *[(~landed).float()] * 2), -1)
    velocity = limited(torch.stack((x_speed, y_speed, z_speed), -1), MAX_CAR_SPEED)
    return Cars(torch.stack((x, y, z), -1), velocity, rotation * level, cars.boost - used), used


def _steered(cars: Cars, controls: Controls, seconds: float) -> Tensor:
    """Return the rotation of cars on the ground, which turn the faster the faster they drive."""
    yaw = cars.rotation[..., 0]
    speed = cars.velocity[..., 0] * torch.cos(yaw) + cars.velocity[..., 1] * torch.sin(yaw)
    rate = TURN_RATE * torch.where(controls.handbrake, HANDBRAKE_TURN, 1.0) * (speed / TURN_SPEED).clamp(-1, 1)
    yaw = wrapped(yaw - controls.steer * rate * seconds)
    return torch.stack((yaw, torch.zeros_like(yaw), torch.zeros_like(yaw)), -1)


def _turned(rotation: Tensor, controls: Controls, seconds: float) -> Tensor:
    """Return the rotation of cars in the air."""
    yaw, pitch, roll = rotation.unbind(-1)
    return torch.stack(
        (
            wrapped(yaw - controls.yaw * (YAW_RATE * seconds)),
            (pitch + controls.pitch * (PITCH_RATE * seconds)).clamp(-math.pi / 2, math.pi / 2),
            wrapped(roll + controls.roll * (ROLL_RATE * seconds)),
        ),
        -1,
    )


def _driven(cars: Cars, controls: Controls, forward: Tensor, left: Tensor, push: Tensor, seconds: float) -> Tensor:
    """Return the velocity of cars on the ground: along their nose, but sideways too with the handbrake."""
    before = cars.rotation[..., :1]
    nose = torch.cat((torch.cos(before), torch.sin(before), torch.zeros_like(before)), -1)
    speed = (cars.velocity * nose).sum(-1)
    throttle = torch.where(speed < THROTTLE_SPEED, THROTTLE_ACCELERATION, FAST_THROTTLE_ACCELERATION)
    throttle = torch.where(controls.throttle >= 0, throttle, BRAKE_ACCELERATION) * controls.throttle
    speed = torch.where(controls.handbrake, (cars.velocity * forward).sum(-1), speed) + throttle * seconds + push
    sideways = torch.where(controls.handbrake, (cars.velocity * left).sum(-1), 0.0)
    flat = forward * speed.unsqueeze(-1) + left * sideways.unsqueeze(-1)
    jump = torch.where(controls.jump, JUMP_SPEED, 0.0)
    return torch.cat((flat[..., :2], jump.unsqueeze(-1)), -1)


def move_ball(ball: Ball, seconds: float, walls: bool) -> Ball:
    """Move the ball freely, and bounce it off floor, ceiling and, if there are walls, off these beside the goals."""
    (x, y, z), (x_speed, y_speed, z_speed) = ball.position.unbind(-1), ball.velocity.unbind(-1)
    x, y = x + x_speed * seconds, y + y_speed * seconds
    z = z + z_speed * seconds - GRAVITY * seconds**2 / 2
    z_speed = z_speed - GRAVITY * seconds
    sunk = BALL_RADIUS - z
    impact = (z_speed.square() - 2 * GRAVITY * sunk).clamp(min=0).sqrt()  # speed at the height of the radius
    z_speed = torch.where(sunk > 0, BOUNCE * impact, z_speed)
    top = CEILING - BALL_RADIUS
    z_speed = torch.where((z > top) & (z_speed > 0), -BOUNCE * z_speed, z_speed)
    z = z.clamp(BALL_RADIUS, top)
    if walls:
        x, x_speed = _bounced(x, x_speed, SIDE_WALL - BALL_RADIUS)
        behind, behind_speed = _bounced(y, y_speed, BACK_WALL - BALL_RADIUS)
        beside = x.abs() >= GOAL_HALF_WIDTH
        y, y_speed = torch.where(beside, behind, y), torch.where(beside, behind_speed, y_speed)
    velocity = limited(torch.stack((x_speed, y_speed, z_speed), -1), MAX_BALL_SPEED)
    return Ball(torch.stack((x, y, z), -1), velocity)


def _bounced(place: Tensor, speed: Tensor, wall: float) -> tuple[Tensor, Tensor]:
    """Return place and speed along one axis after the walls at +-`wall`."""
    outward = (place.abs() > wall) & (place * speed > 0)
    return place.clamp(-wall, wall), torch.where(outward, -BOUNCE * speed, speed)


def hit_ball(ball: Ball, cars: Cars, hit_power: float) -> tuple[Ball, Tensor]:
    """Give the ball 1.5 `hit_power` times the velocity of the car that touches it, the mean one of several.

    Returns: the ball, and which cars touch it, bool `[E, A]`.
    """
    touches = (cars.position - ball.position.unsqueeze(1)).norm(dim=-1) < TOUCH_DISTANCE
    count = touches.sum(1, keepdim=True)
    velocity = (cars.velocity * touches.unsqueeze(-1)).sum(1) / count.clamp(min=1)
    struck = limited(velocity * (HIT_SPEED * hit_power), MAX_BALL_SPEED)
    return Ball(ball.position, torch.where(count > 0, struck, ball.velocity)), touches


def collect_pads(cars: Cars, timer: Tensor, pads: Tensor, seconds: float) -> tuple[Tensor, Tensor]:
    """Fill the boost of cars on full pads.

    Args:
        timer: seconds until a pad is full, `[E, 34]`.   pads: `pad_table`, `[34, 5]`.

    Returns: boost `[E, A]` and timer.
    """
    x, y, gives, refill, radius = pads.unbind(1)
    timer = (timer - seconds).clamp(min=0)
    near = (cars.position[..., :1] - x).square() + (cars.position[..., 1:2] - y).square() < radius.square()
    taken = near & (timer == 0).unsqueeze(1) & (cars.position[..., 2] < PAD_HEIGHT).unsqueeze(-1)
    boost = (cars.boost + (taken * gives).sum(-1)).clamp(max=MAX_BOOST)
    return boost, torch.where(taken.any(1), refill, timer)


def wrapped(angle: Tensor) -> Tensor:
    """Return angles in [-pi, pi)."""
    return torch.remainder(angle + math.pi, 2 * math.pi) - math.pi
