"""Car-ball restated for one environment in float64, car by car, without tensors."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from datamodules.envs.carball.field import pad_table

PADS = pad_table().double().numpy()
"""Where the pads are and what they give: data, not computation."""


@dataclass
class Car:
    team: int
    position: np.ndarray
    velocity: np.ndarray
    yaw: float
    pitch: float
    roll: float
    boost: float
    action: np.ndarray = field(default_factory=lambda: np.zeros(8))
    idle: int = 0


@dataclass
class Game:
    cars: list[Car]
    ball: np.ndarray
    ball_velocity: np.ndarray
    pads: np.ndarray
    steps: int = 0


def turn_about(axis: np.ndarray, angle: float, vector: np.ndarray) -> np.ndarray:
    """Rotate a vector about a unit axis by Rodrigues' formula."""
    return (
        vector * math.cos(angle)
        + np.cross(axis, vector) * math.sin(angle)
        + axis * axis.dot(vector) * (1 - math.cos(angle))
    )


def frame(car: Car) -> np.ndarray:
    """Forward, left and up of a car as rows, by three rotations one after the other."""
    up = np.array([0.0, 0.0, 1.0])
    forward, left = turn_about(up, car.yaw, np.array([1.0, 0, 0])), turn_about(up, car.yaw, np.array([0, 1.0, 0]))
    forward, up = turn_about(left, -car.pitch, forward), turn_about(left, -car.pitch, up)
    return np.array([forward, turn_about(forward, car.roll, left), turn_about(forward, car.roll, up)])


def capped(velocity: np.ndarray, most: float) -> np.ndarray:
    speed = float(np.sqrt((velocity**2).sum()))
    return velocity * most / speed if speed > most else velocity


def angle(value: float) -> float:
    return (value + math.pi) % (2 * math.pi) - math.pi


def moved_car(car: Car, dt: float, walls: bool) -> tuple[Car, float]:
    """The car after a step, and the boost used; its own action has been set."""
    throttle, steer, pitch, yaw, roll = car.action[:5]
    jump, boosting, handbrake = (switch > 0.5 for switch in car.action[5:])
    used = min(33.3 * dt, car.boost) if boosting else 0.0
    gain = 991.667 * used / 33.3
    after, grounded = replace(car, boost=car.boost - used), car.position[2] <= 17.0
    if grounded:
        nose = np.array([math.cos(car.yaw), math.sin(car.yaw)])
        speed = float(car.velocity[:2] @ nose)
        rate = 2.2 * max(-1.0, min(1.0, speed / 500)) * (1.6 if handbrake else 1.0)
        after.yaw, after.pitch, after.roll = angle(car.yaw - steer * rate * dt), 0.0, 0.0
        nose, side = frame(after)[0][:2], frame(after)[1][:2]
        along, across = (float(car.velocity[:2] @ nose), float(car.velocity[:2] @ side)) if handbrake else (speed, 0.0)
        if throttle < 0:
            along += 525 * throttle * dt
        else:
            along += (1600 if speed < 1400 else 160) * throttle * dt
        flat = nose * (along + gain) + side * across
        velocity = capped(np.array([*flat, 500.0 if jump else 0.0]), 2300)
    else:
        after.yaw = angle(car.yaw - yaw * 2.5 * dt)
        after.pitch = min(math.pi / 2, max(-math.pi / 2, car.pitch + pitch * 3 * dt))
        after.roll = angle(car.roll + roll * 4 * dt)
        velocity = capped(car.velocity + frame(after)[0] * gain, 2300)
    position = car.position + velocity * dt
    if jump or not grounded:
        position[2] -= 325 * dt * dt
        velocity = velocity - np.array([0, 0, 650 * dt])
    for axis, wall in ((0, 4096.0), (1, 5120.0)):
        if walls and abs(position[axis]) >= wall:
            if position[axis] * velocity[axis] > 0:
                velocity[axis] = 0.0
            position[axis] = math.copysign(wall, position[axis])
    if position[2] <= 17:
        position[2], velocity[2], after.pitch, after.roll = 17.0, max(0.0, velocity[2]), 0.0, 0.0
    elif position[2] >= 2044:
        position[2], velocity[2] = 2044.0, min(0.0, velocity[2])
    after.position, after.velocity = position, capped(velocity, 2300)
    return after, used


def moved_ball(ball: np.ndarray, velocity: np.ndarray, dt: float, walls: bool) -> tuple[np.ndarray, np.ndarray]:
    place, speed = ball + velocity * dt, velocity.copy()
    place[2] -= 325 * dt * dt
    speed[2] -= 650 * dt
    if place[2] < 92.75:  # energy at the floor gives the speed of the impact
        speed[2] = 0.6 * math.sqrt(max(0.0, 2 * (speed[2] ** 2 / 2 + 650 * (place[2] - 92.75))))
        place[2] = 92.75
    elif place[2] > 2044 - 92.75:
        speed[2] = -0.6 * speed[2] if speed[2] > 0 else speed[2]
        place[2] = 2044 - 92.75
    if walls:
        for axis, wall in ((0, 4096 - 92.75), (1, 5120 - 92.75)):
            if abs(place[axis]) > wall and (axis == 0 or abs(place[0]) >= 893):
                if place[axis] * speed[axis] > 0:
                    speed[axis] *= -0.6
                place[axis] = math.copysign(wall, place[axis])
    return place, capped(speed, 6000)


def towards(ball: np.ndarray, velocity: np.ndarray, team: int) -> float:
    way = np.array([0.0, 5120.0 * team]) - ball[:2]
    return float(velocity[:2] @ way) / max(1.0, math.hypot(*way))


def step(game: Game, actions: np.ndarray, dt: float, weights: dict[str, float], walls: bool = True):
    """The game after a step, the rewards, the winner (1 blue, -1 orange, 0 none), and whether something is outside."""
    before = game
    moves = [moved_car(replace(car, action=action), dt, walls) for car, action in zip(game.cars, actions, strict=True)]
    cars = [car for car, _ in moves]
    ball, velocity = moved_ball(game.ball, game.ball_velocity, dt, walls)
    touching = [math.dist(car.position, ball) < 200 for car in cars]
    if any(touching):
        hits = [car.velocity for car, touches in zip(cars, touching, strict=True) if touches]
        velocity = capped(1.5 * sum(hits) / len(hits), 6000)
    pads = np.maximum(game.pads - dt, 0)
    for pad, (x, y, gives, refill, radius) in enumerate(PADS):
        if pads[pad] == 0:
            for car in cars:
                if math.hypot(car.position[0] - x, car.position[1] - y) < radius and car.position[2] < 165:
                    car.boost, pads[pad] = min(100.0, car.boost + gives), refill
    winner = int(np.sign(ball[1])) if abs(ball[1]) >= 5120 and abs(ball[0]) < 893 else 0
    rewards = []
    for old, (car, used), touches in zip(before.cars, moves, touching, strict=True):
        car.idle = 0 if touches else car.idle + 1
        closer = math.dist(old.position, before.ball) - math.dist(car.position, ball)
        faster = towards(ball, velocity, car.team) - towards(before.ball, before.ball_velocity, car.team)
        fast = math.hypot(*car.velocity) >= 0.995 * 2300
        events = {
            "goal": winner == car.team,
            "concede": winner == -car.team,
            "touch": touches,
            "aerial_touch": touches and ball[2] > 300,
            "closer": closer / (2300 * dt),
            "ball_to_goal": faster / 2300,
            "boost_waste": used > 0 and fast,
            "boost_starve": car.action[6] > 0.5 and used == 0,
            "idle": car.idle >= 150,
        }
        rewards.append(sum(weights[name] * float(value) for name, value in events.items()))
    places = [*(car.position for car in cars), ball]
    outside = any(abs(place[0]) > 4096 or abs(place[1]) > 5120 for place in places)
    return Game(cars, ball, velocity, pads, game.steps + 1), np.array(rewards), winner, outside


def observed(game: Game, number: int, limit: int = 300, time_limit: int = 3000) -> np.ndarray:
    """What a car observes, in the order of the documentation."""
    me = game.cars[number]
    view = np.array([me.team, me.team, 1.0])
    own = frame(me) * view
    place, motion = me.position * view / 5120, me.velocity * view / 2300
    ball, ball_motion = game.ball * view / 5120, game.ball_velocity * view / 2300
    goal, own_goal = np.array([0, 1, 92.75 / 5120]), np.array([0, -1, 92.75 / 5120])
    path = []
    for seconds in (0.25, 0.5, 1.0, 2.0):
        point = game.ball + game.ball_velocity * seconds - np.array([0, 0, 325 * seconds**2])
        path.append(np.array([point[0], point[1], max(point[2], 92.75)]) * view / 5120)
    order = range(34) if me.team > 0 else [*range(17, 34), *range(17)]
    parts = [place, motion, *own, [me.boost / 100, me.position[2] <= 17, math.hypot(*motion), min(1, me.idle / limit)]]
    parts += [me.action, ball, ball_motion, own @ (ball - place), own @ (ball_motion - motion)]
    parts += [[math.dist(ball, place)], *path, goal - ball, own_goal - ball, own @ (goal - place)]
    parts += [own @ (own_goal - place), [1 - game.pads[pad] / 10 for pad in order], [1 - game.steps / time_limit]]
    mates = [car for car in game.cars if car.team == me.team and car is not me][:1]
    rivals = [car for car in game.cars if car.team != me.team]
    for other in [*mates, *[None] * (1 - len(mates)), *rivals, *[None] * (2 - len(rivals))]:
        if other is None:
            parts.append(np.zeros(27))
            continue
        there, moving, axes = other.position * view / 5120, other.velocity * view / 2300, frame(other) * view
        parts += [[1, other.team == me.team], there, moving, axes[0], axes[2]]
        parts += [[other.boost / 100, other.position[2] <= 17], own @ (there - place), own @ (moving - motion)]
        parts += [[math.dist(ball, there), math.dist(there, place)], ball - there]
    return np.concatenate([np.asarray(part, dtype=float) for part in parts])
