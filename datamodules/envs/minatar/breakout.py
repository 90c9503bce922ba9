"""Breakout of MinAtar: bounce a ball with a paddle and break three rows of bricks."""

import torch
from torch import Tensor

from datamodules.core.types import State
from datamodules.envs.minatar.game import CELLS, LEFT, NOOP, RIGHT, SIDE, MinAtarGame, content, walked

START_ROW = 3
PADDLE_START = 4
FLOOR = SIDE - 1


class Breakout(MinAtarGame):
    """Breakout: reward 1 for every brick; the game is over when the ball passes the paddle.

    The ball moves by one cell diagonally. It starts in row 3 at the left or the right edge, moving down and inward. A
    brick reflects it vertically, unless it hit a brick in the step before. The paddle, in the lowest row, reflects it
    vertically where it was above the paddle, and back to where it came from where it arrives at the paddle. When all
    bricks are gone, new ones appear as the ball reaches the lowest row. Difficulty does not ramp in this game.

    Planes: paddle, ball, trail (where the ball was before), brick. Actions: no-op, left, right. See `MinAtarGame` for
    the arguments.
    """

    channels = ("paddle", "ball", "trail", "brick")
    signs = "=o,#"
    effective_actions = (NOOP, LEFT, RIGHT)
    draws = 1

    def start(self, noise: Tensor) -> State:
        """Return the game at its start; the uniform `[B, 1]` draws the side of the ball."""
        right = noise[:, 0] >= 0.5
        x, ones = torch.where(right, SIDE - 1, 0), torch.ones_like(right, dtype=torch.int64)
        return {
            "x": x,
            "y": ones * START_ROW,
            "x_step": torch.where(right, -1, 1),
            "y_step": ones,
            "last_x": x.clone(),
            "last_y": ones * START_ROW,
            "paddle": ones * PADDLE_START,
            "bricks": new_bricks(right),
            "struck": torch.zeros_like(right),
        }

    def play(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor]:
        """Move paddle and ball, and reflect the ball at walls, bricks and paddle."""
        last_x, last_y, bricks = state["x"], state["y"], state["bricks"]
        paddle = walked(state["paddle"], action, LEFT, RIGHT)
        x, y = last_x + state["x_step"], last_y + state["y_step"]
        x_step = torch.where((x < 0) | (x >= SIDE), -state["x_step"], state["x_step"])
        x = x.clamp(0, SIDE - 1)
        roof = y < 0
        y = y.clamp(0, FLOOR)
        brick = content(bricks, x, y) & ~roof
        hit = brick & ~state["struck"]
        bricks = bricks & ~(self.cell(x, y) & hit[:, None])
        floor = ~roof & ~brick & (y == FLOOR)
        above, at = floor & (last_x == paddle), floor & (last_x != paddle) & (x == paddle)
        bricks = bricks | (new_bricks(floor) & (floor & ~bricks.any(1))[:, None])
        y_step = torch.where(roof | hit | above | at, -state["y_step"], state["y_step"])
        return (
            {
                "x": x,
                "y": torch.where(hit | above | at, last_y, y),
                "x_step": torch.where(at, -x_step, x_step),
                "y_step": y_step,
                "last_x": last_x.clone(),
                "last_y": last_y.clone(),
                "paddle": paddle,
                "bricks": bricks,
                "struck": brick,
            },
            hit,
            floor & ~above & ~at,
        )

    def planes(self, state: State) -> list[Tensor]:
        """Return the boards of paddle, ball, trail and bricks."""
        floor = torch.full_like(state["paddle"], FLOOR)
        return [
            self.cell(state["paddle"], floor),
            self.cell(state["x"], state["y"]),
            self.cell(state["last_x"], state["last_y"]),
            state["bricks"],
        ]


def new_bricks(like: Tensor) -> Tensor:
    """Return boards, bool `[B, 100]`, with bricks in rows 1 to 3, for B rows `like` these."""
    board = torch.zeros(len(like), CELLS, dtype=torch.bool, device=like.device)
    board[:, SIDE : 4 * SIDE] = True
    return board
