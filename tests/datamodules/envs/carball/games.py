"""States of Car-ball made by hand, drawn, and converted to those of the restatement."""

import numpy as np
import torch
from torch import Tensor

from datamodules.core.types import State
from datamodules.envs.carball.env import Carball
from tests.oracles.carball import Car, Game

STILL = [1, 1, 1, 1, 1, 0, 0, 0]
"""The discrete action that does nothing."""


def drawn_actions(env: Carball, rows: int, generator: torch.Generator) -> Tensor:
    """Uniform actions `[rows, A, 8]`, or `[rows, 8]` of one car."""
    if env.discrete:
        parts = [torch.randint(size, (rows, env.cars), generator=generator) for size in env.spaces["action_sizes"]]
        action = torch.stack(parts, 2)
    else:
        low, high = torch.tensor(env.spaces["action_low"]), torch.tensor(env.spaces["action_high"])
        action = low + (high - low) * torch.rand(rows, env.cars, 8, generator=generator)
    return action if env.cars > 1 else action[:, 0]


def drawn_state(env: Carball, rows: int, generator: torch.Generator) -> State:
    """States anywhere on the field and above it, with any velocities, rotations, boost and pads."""

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(rows, *shape, generator=generator)

    state, cars = env.initial(torch.rand(rows, env.noise_size, generator=generator)), env.cars
    scale = torch.tensor([4000.0, 5000.0, 900.0])
    height, ball_height = torch.tensor([0.0, 0.0, 950.0]), torch.tensor([0.0, 0.0, 1000.0])
    grounded = (uniform(0, 1, cars) < 0.5).unsqueeze(-1)
    position = uniform(-1, 1, cars, 3) * scale + height
    velocity = uniform(-1, 1, cars, 3) * 1300
    rotation = uniform(-1, 1, cars, 3) * torch.tensor([3.1, 1.5, 3.1])
    flat, level = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1.0, 0.0, 0.0])
    near = uniform(-1, 1, 3) * 150 + position[:, 0]
    ball = torch.where(uniform(0, 1, 1) < 0.3, near, uniform(-1, 1, 3) * scale + ball_height)
    ball[:, 2].clamp_(92.75, 1900)
    return state | {
        "car_position": torch.where(grounded, position * flat + torch.tensor([0.0, 0.0, 17.0]), position),
        "car_velocity": torch.where(grounded, velocity * flat, velocity),
        "car_rotation": torch.where(grounded, rotation * level, rotation),
        "boost": uniform(-20, 100, cars).clamp(min=0),
        "ball_position": ball,
        "ball_velocity": uniform(-1, 1, 3) * 2000,
        "pads": uniform(-10, 10, 34).clamp(min=0),
        "idle_steps": uniform(0, 250, cars).floor(),
        "steps": uniform(300, 2000).floor(),
        "last_action": uniform(-1, 1, cars, 8),
    }


def as_game(env: Carball, state: State, row: int) -> Game:
    """One row as a game of the restatement."""
    leaves = {name: leaf[row].double().numpy() for name, leaf in state.items()}
    cars = [
        Car(
            1 if number < env.blue else -1,
            leaves["car_position"][number],
            leaves["car_velocity"][number],
            *leaves["car_rotation"][number],
            boost=float(leaves["boost"][number]),
            action=leaves["last_action"][number],
            idle=int(leaves["idle_steps"][number]),
        )
        for number in range(env.cars)
    ]
    return Game(cars, leaves["ball_position"], leaves["ball_velocity"], leaves["pads"], int(leaves["steps"]))


def controls(action: Tensor, env: Carball) -> np.ndarray:
    """Actions `[A, 8]` of one row as the eight numbers of the restatement."""
    numbers = action.double().view(env.cars, 8)
    return (torch.cat((numbers[:, :5] - 1, numbers[:, 5:]), 1) if env.discrete else numbers).numpy()


def stepped(env: Carball, state: State, *action: list[int]) -> tuple[State, Tensor, Tensor, Tensor]:
    """Step one row with an action for each car; the first for all if there is one."""
    chosen = torch.tensor([*action] if len(action) == env.cars else [*action] * env.cars)
    chosen = chosen.expand(len(state["steps"]), -1, -1)
    return env.transition(state, chosen if env.cars > 1 else chosen[:, 0], torch.zeros(len(state["steps"]), 1))
