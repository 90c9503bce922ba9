"""Freeway of MinAtar: cross a road with eight lanes of cars, again and again."""

import torch
from torch import Tensor

from datamodules.core.types import State
from datamodules.envs.minatar.game import DOWN, NOOP, SIDE, UP, MinAtarGame, marked, walked

COLUMN = 4
LANES = 8
SLOWEST = 5
REST = 3
"""Steps after a move before the chicken can move again."""

TIME = 2500
BOTTOM = SIDE - 1


class Freeway(MinAtarGame):
    """Freeway: reward 1 for every crossing; the game is over after 2,501 steps.

    The chicken starts at the bottom and moves up or down, at most every third step. A car that meets it sends it back
    to the bottom. Cars drive in the rows 1 to 8, each by one cell every so many steps as its speed is (1 is each second
    step), and reappear on the other side. Speeds and directions are drawn at the start and at every crossing.
    Difficulty does not ramp in this game.

    Planes: chicken, car, and one for each speed from 1 to 5, with the cell behind the car. Actions: no-op, up, down.
    See `MinAtarGame` for the arguments.
    """

    channels = ("chicken", "car", "speed_1", "speed_2", "speed_3", "speed_4", "speed_5")
    signs = "*O12345"
    effective_actions = (NOOP, UP, DOWN)
    draws = LANES

    def make_tables(self) -> tuple[Tensor, ...]:
        """Return the rows of the cars."""
        return (torch.arange(1, LANES + 1),)

    def start(self, noise: Tensor) -> State:
        """Return the game at its start; each of the uniforms `[B, 8]` draws direction and speed of a car."""
        speed, ones = drawn_speeds(noise), torch.ones_like(noise[:, 0], dtype=torch.int64)
        return {
            "row": ones * BOTTOM,
            "rest": ones * REST,
            "x": torch.zeros_like(speed),
            "speed": speed,
            "wait": speed.abs(),
            "left": ones * TIME,
        }

    def play(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor]:
        """Move the chicken, then the cars."""
        rest, speed, wait = state["rest"], state["speed"], state["wait"]
        moves = ((action == UP) | (action == DOWN)) & (rest == 0)
        row = torch.where(moves, walked(state["row"], action, UP, DOWN), state["row"])
        rest = torch.where(moves, REST, rest)
        crossed = row == 0
        drawn = drawn_speeds(noise)
        speed = torch.where(crossed[:, None], drawn, speed)
        wait = torch.where(crossed[:, None], drawn.abs(), wait)
        row = torch.where(crossed, BOTTOM, row)
        drives = wait == 0
        x = torch.where(drives, (state["x"] + speed.sign()) % SIDE, state["x"])
        (lanes,) = self.tables.on(row.device)
        met = ((lanes == row[:, None]) & ((x == COLUMN) | (state["x"] == COLUMN))).any(1)
        left = state["left"] - 1
        after = {
            "row": torch.where(met, BOTTOM, row),
            "rest": (rest - 1).clamp(min=0),
            "x": x,
            "speed": speed,
            "wait": torch.where(drives, speed.abs(), wait - 1),
            "left": left,
        }
        return after, crossed, left < 0

    def planes(self, state: State) -> list[Tensor]:
        """Return the boards of chicken, cars and the trails by speed."""
        x, speed = state["x"], state["speed"]
        lanes = self.tables.on(x.device)[0].expand_as(x)
        behind = (x - speed.sign()) % SIDE
        trails = [marked(behind, lanes, speed.abs() == number) for number in range(1, SLOWEST + 1)]
        column = torch.full_like(state["row"], COLUMN)
        return [self.cell(column, state["row"]), marked(x, lanes, speed != 0), *trails]


def drawn_speeds(noise: Tensor) -> Tensor:
    """Return uniform speeds 1 to 5, negative to the left, from uniforms `[B, 8]`."""
    number = (noise * 2 * SLOWEST).long()
    speed = 1 + number % SLOWEST
    return torch.where(number < SLOWEST, -speed, speed)
