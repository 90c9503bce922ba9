"""Hand-made Snake positions and a scripted player, for tests."""

import torch
from torch import Tensor

from datamodules.core.types import State
from datamodules.envs.snake.env import Snake

UP, RIGHT, DOWN, LEFT = range(4)


def start(snake: Snake, x: float = 0.0, y: float = 0.0, food: float = 0.0, rows: int = 1) -> State:
    """First states from chosen uniforms, the same in every row."""
    return snake.initial(torch.tensor([[x, y, food]]).repeat(rows, 1))


def play(snake: Snake, state: State, *moves: int, food: float = 0.0) -> tuple[State, Tensor, Tensor, Tensor]:
    """The state after some moves of the first row, and the last step's reward, terminated and truncated."""
    for move in moves:
        state, *outcome = snake.transition(state, torch.tensor([move]), torch.tensor([[0.0, 0.0, food]]))
    return state, *outcome


def text(snake: Snake, state: State, row: int = 0) -> list[str]:
    """The board as lines of text."""
    return str(snake.render(state, row, "ansi")).split("\n")


def place_food(snake: Snake, state: State, x: int, y: int) -> State:
    """The same position with the food somewhere else."""
    cell = torch.full_like(state["food"], y * snake.dim + x)
    return state | {"food": cell}


def run(snake: Snake, rows: int, episodes: int, player) -> Tensor:
    """Food of whole episodes that a player of features finishes, one number an episode (the first `episodes` rows')."""
    generator = torch.Generator().manual_seed(0)
    state = snake.initial(torch.rand(rows, 3, generator=generator))
    alive, food = torch.ones(rows, dtype=torch.bool), torch.zeros(rows)
    while alive[:episodes].any():
        noise = torch.rand(rows, 4, generator=generator)
        action = player(snake.observation(state), noise[:, 3])
        state, _, terminated, truncated = snake.transition(state, action, noise[:, :3])
        ended = alive & (terminated | truncated)
        food[ended] = snake.info(state)["food"][ended].float()
        alive &= ~ended
    return food[:episodes]


def at_random(features: Tensor, uniform: Tensor) -> Tensor:
    """Any of four moves."""
    return (uniform * 4).long()


def greedy_and_safe(features: Tensor, uniform: Tensor) -> Tensor:
    """A move that is safe and nears the food, else one that is safe; the first of a random order."""
    danger, toward = features[:, 4:8], features[:, 8:12]
    order = torch.stack([(uniform * prime) % 1 for prime in (101, 307, 701, 997)], 1)
    return (4 * (1 - danger) + 2 * toward + order).argmax(1)
