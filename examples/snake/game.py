"""One game of Snake in plain Python: the environment of the older system, for a loop that plays a single board.

The rules are those of `Snake-v0`, restated cell by cell; the tests hold the two against each other. For a board or two
this is ten times faster than tensors, for a thousand boards a hundred times slower: train in earnest with
`python -m app fit`.
"""

from collections import deque
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from datamodules.envs.snake.env import check_snake_arguments
from datamodules.envs.snake.rewards import REWARDS

MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))
RIGHT = 1
EMPTY, BODY, HEAD, FOOD = range(4)
Cell = tuple[int, int]


class SnakeEnv(gymnasium.Env[np.ndarray, np.int64]):
    """Snake with the old system's arguments, rewards and time limit of 2 dim^2 steps; every object a game of its own.

    Actions: 0 up, 1 right, 2 down, 3 left; turning back on itself goes straight on. Observations, float32: the board
    row by row `[dim * dim]` (0 empty, 1 body, 2 head, 3 food), or the nineteen numbers of `Snake-v0`'s `features`.

    Args:
        startingBlocks: cells of the snake at the start, head included.
        dim: cells along one side.
        distToBorder: fewest cells between the first head and the left or upper border.
        use_features: the later version of the system, with features and rewards `shaped`; else the board and `classic`.
        render_mode: `ansi`, `rgb_array` or None.

    Raises:
        ConfigurationError: if an argument is out of range.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(
        self,
        startingBlocks: int = 3,
        dim: int = 10,
        distToBorder: int = 3,
        use_features: bool = False,
        render_mode: str | None = None,
    ) -> None:
        check_snake_arguments(dim, startingBlocks, None, distToBorder, "grid", "board")
        self.start_length, self.dim, self.near = startingBlocks, dim, distToBorder
        self.use_features, self.render_mode = use_features, render_mode
        self.pays = REWARDS["shaped" if use_features else "classic"]
        low, high, self.state_size = (-1.0, 1.0, 19) if use_features else (0.0, 3.0, dim * dim)
        self.observation_space = Box(low, high, (self.state_size,), np.float32)
        self.action_space = Discrete(4)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start a game; takes no options."""
        super().reset(seed=seed)
        x, y = self.np_random.integers(self.near, self.dim - 1 - self.near, 2).tolist()
        self.body = deque((x - back, y) for back in range(self.start_length))
        self.direction, self.steps = RIGHT, 0
        self.board = np.zeros((self.dim, self.dim), np.float32)
        for column, row in self.body:
            self.board[row, column] = BODY
        self.board[y, x] = HEAD
        self._place_food()
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Move by one cell."""
        self.steps += 1
        if (action - self.direction) % 4 != 2:
            self.direction = int(action)
        (x, y), (right, down) = self.body[0], MOVES[self.direction]
        died, eaten, closer = self._blocked(x + right, y + down), False, self._nears(x, y)
        if not died:
            eaten = self._move(x + right, y + down)
        full = len(self.body) == self.dim**2
        reward = self._reward(died, eaten, closer)
        return self._observation(), reward, died or full, self.steps >= 2 * self.dim**2, self._info()

    def render(self) -> Any:
        """The board as text or as a picture; None without a mode."""
        if self.render_mode == "ansi":
            return "\n".join("".join(".o@*"[int(cell)] for cell in row) for row in self.board)
        if self.render_mode == "rgb_array":
            palette = np.array([[24, 26, 32], [76, 160, 92], [170, 230, 120], [226, 84, 72]], np.uint8)
            return palette[self.board.astype(int)].repeat(16, 0).repeat(16, 1)
        return None

    def _move(self, x: int, y: int) -> bool:
        """Take the head there, and the tail along unless there was food."""
        column, row = self.body[0]
        self.board[row, column] = BODY
        self.body.appendleft((x, y))
        eaten = (x, y) == self.food
        if not eaten:
            column, row = self.body.pop()
            self.board[row, column] = EMPTY
        self.board[y, x] = HEAD
        if eaten:
            self._place_food()
        return eaten

    def _place_food(self) -> None:
        """On a free cell, all alike; on a full board nowhere."""
        free = np.flatnonzero(self.board == EMPTY)
        if free.size:
            row, column = divmod(int(free[self.np_random.integers(free.size)]), self.dim)
            self.food, self.board[row, column] = (column, row), FOOD

    def _blocked(self, x: int, y: int) -> bool:
        return not (0 <= x < self.dim and 0 <= y < self.dim and self.board[y, x] in (EMPTY, FOOD))

    def _nears(self, x: int, y: int) -> bool:
        """Whether the move from there leads toward the food."""
        right, down = MOVES[self.direction]
        return (self.food[0] - x) * right + (self.food[1] - y) * down > 0

    def _reward(self, died: bool, eaten: bool, closer: bool) -> float:
        pays = self.pays
        if died:
            return pays["death"] + pays.get("step", 0.0)
        reward = pays.get("step", 0.0) + pays.get("survive", 0.0) + (pays["food"] if eaten else 0.0)
        if self.use_features:
            reward += pays["closer" if closer else "farther"] + pays["length"] * len(self.body)
            reward += pays["danger"] * (sum(self._dangers()) >= 3)
        return reward

    def _dangers(self) -> list[bool]:
        x, y = self.body[0]
        return [self._blocked(x + right, y + down) for right, down in MOVES]

    def _observation(self) -> np.ndarray:
        if not self.use_features:
            return self.board.flatten()
        dim, (x, y), tail = self.dim, self.body[0], self.body[-1]
        right, down = self.food[0] - x, self.food[1] - y
        heading = [direction == self.direction for direction in range(4)]
        sides = [down < 0, right > 0, down > 0, right < 0]
        places = [right / dim, down / dim, len(self.body) / dim**2, x / dim, y / dim, tail[0] / dim, tail[1] / dim]
        return np.array([*heading, *self._dangers(), *sides, *places], np.float32)

    def _info(self) -> dict[str, Any]:
        length = len(self.body)
        return {"food": length - self.start_length, "snake_length": length, "full_board": int(length == self.dim**2)}
