"""Snake on a square board: eat food, grow, and avoid the walls and the own body.

The state makes a step cheap. Cells are numbered row by row; two more places are the wall, to which every move out of
the board leads, and a place for the food if no cell is free. A body cell holds `4 * expiry + exit`: the time when it
becomes free, on a clock per row, and the direction in which the head left it. The clock stops on a step that eats,
which is how the snake grows; so no step passes over the whole board, and the tail follows the exits. Time is counted in
quarters of a clock tick, the unit of the cells: a cell is occupied exactly if it holds at least `now`. The wall and the
head hold `WALL`, which never expires; the head's cell gets its expiry and exit when the head leaves it.
"""

from typing import Literal

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import State, discrete_spaces
from datamodules.envs.snake.long_starts import LongStarts
from datamodules.envs.snake.observations import (
    RIGHT,
    WALL,
    BoardTables,
    ansi,
    features,
    grid,
    planes,
    rgb_array,
    starvation_limit,
    tables,
)
from datamodules.envs.snake.rewards import resolve_reward_table, reward

LONGEST_EPISODE = 2**29 - 2**16


def check_snake_arguments(
    dim: int, start_length: int, max_start_length: int | None, near: int, observation: str, starvation: str | int
) -> None:
    """Raise ConfigurationError for the first argument that is out of range."""
    if near < 0 or dim <= 2 * near + 1:
        raise ConfigurationError(
            f"Snake's head cannot start {near} cells from the border of a board of dim {dim}; "
            f"choose distance_to_border from 0 to {max((dim - 2) // 2, 0)}, and dim at least 2."
        )
    if not 1 <= start_length <= near + 1:
        raise ConfigurationError(
            f"Snake of start_length {start_length} does not fit between its first head and the border; "
            f"choose start_length from 1 to distance_to_border + 1 = {near + 1}."
        )
    if max_start_length is not None and (dim % 2 or not start_length <= max_start_length < dim**2):
        raise ConfigurationError(
            f"Snake's max_start_length is {max_start_length} on a board of dim {dim}; choose an even dim and "
            f"max_start_length from start_length to dim^2 - 1, {start_length} to {dim**2 - 1}, or null."
        )
    if observation not in ("planes", "grid", "features"):
        raise ConfigurationError(f"Snake has no observation {observation!r}; choose planes, grid or features.")
    if isinstance(starvation, bool) or (starvation not in ("length", "board") and not isinstance(starvation, int)):
        raise ConfigurationError(f"Snake has no starvation {starvation!r}; choose length, board or a number of steps.")
    if starvation_limit(starvation, dim, 1) < 1:
        raise ConfigurationError(f"Snake's starvation is {starvation} steps; choose at least 1.")
    if dim**2 * starvation_limit(starvation, dim, dim**2) >= LONGEST_EPISODE:
        raise ConfigurationError(
            f"Snake with dim {dim} and starvation {starvation!r} allows episodes of more than {LONGEST_EPISODE} steps, "
            "the most its clock counts; choose a smaller dim or starvation."
        )


class Snake:
    """Snake as a `TorchFuncEnv`; every row is a separate game.

    Actions: 0 up, 1 right, 2 down, 3 left; reversing is replaced by going straight on. With `relative_actions`: 0 left,
    1 straight on, 2 right of the current direction. The snake starts heading right, its head uniform in
    `range(distance_to_border, dim - 1 - distance_to_border)` on both axes, its body to the left. One food is on a
    uniformly drawn free cell. Eating it adds a cell at the tail and draws the next. Hitting a wall or the body
    terminates the episode, as does filling the board; the tail's cell counts as body although the tail would leave it.
    A snake that dies stays in place, and steps after an episode's end change nothing.

    Observations: `planes` `[3, dim, dim]` in bytes, 255 for one, so that a network needs `scale: 1/255` (head; body,
    each cell by the fraction of the length after which it becomes free; food); float32 `grid` `[dim * dim]` (0 free, 1
    body, 2 head, 3 food) or `features` `[19]`: direction one-hot, blocked neighbours and side of the food (4 flags
    each: up, right, down, left), food minus head x and y over dim, length over dim^2, then x and y over dim of head and
    tail.

    Args:
        dim: cells along one side.
        start_length: initial length of the snake in cells, head included.
        distance_to_border: fewest cells between the initial head and the left or upper border.
        observation: planes, grid or features, see above.
        rewards: name of a table (`plain`: food 1, death -1; `classic`, `shaped` and `engine`: see
            `datamodules.envs.snake.rewards`) or amounts by term; missing terms are 0. `food` and `death` on those
            steps, `step` on every step, `survive` on all but the fatal one; on steps survived also `closer` or
            `farther` (distance to the food before the step, so that eating is closer), `length` (times the cells of the
            snake), `danger` (if three or more neighbours are blocked), `near` (divided by the steps to that food,
            unless eaten) and `inside` (times the logistic function of the cells between head and border).
        starvation: truncation of an episode: "length", after 100 + 10 * length steps without food; a number, after that
            many; "board", 2 * dim^2 steps after its start, whatever was eaten.
        relative_actions: actions are turns: 0 left, 1 straight on, 2 right.
        max_start_length: if given, episodes start with a snake of a length drawn from `start_length` to this, on a
            random Hamiltonian cycle of the board (`datamodules.envs.snake.long_starts`); `dim` is even then. It shows
            boards in training that an agent seldom reaches: evaluate with null for this and the next. `food` counts
            from the drawn length.
        long_start_share: share of the episodes that start so, in [0, 1], if `max_start_length` is given; null: all. The
            others start as without it.

    Raises:
        ConfigurationError: if an argument is out of range.
    """

    episode_stat_keys = ("food", "snake_length", "full_board")

    def __init__(
        self,
        dim: int = 10,
        start_length: int = 3,
        distance_to_border: int = 3,
        observation: Literal["planes", "grid", "features"] = "planes",
        rewards: str | dict[str, float] = "plain",
        starvation: Literal["length", "board"] | int = "length",
        relative_actions: bool = False,
        max_start_length: int | None = None,
        long_start_share: float | None = None,
    ) -> None:
        check_snake_arguments(dim, start_length, max_start_length, distance_to_border, observation, starvation)
        share = 1.0 if long_start_share is None else long_start_share
        if not 0 <= share <= 1:
            raise ConfigurationError(f"Snake's long_start_share is {share}; choose from 0 to 1.")
        if max_start_length is None and long_start_share is not None:
            raise ConfigurationError(
                f"Snake's long_start_share is {share}, but without max_start_length no episode starts with a long"
                " snake: give max_start_length, or set long_start_share to null."
            )
        self.dim, self.start_length, self.distance_to_border = dim, start_length, distance_to_border
        self.layout, self.relative_actions = observation, relative_actions
        self.long_starts = None if max_start_length is None else LongStarts(dim, start_length, max_start_length, share)
        self.noise_size = 3 if max_start_length is None else 5
        self.rewards = resolve_reward_table(rewards)
        self.fixed_deadline = starvation == "board"
        self.min_truncation_step = starvation_limit(starvation, dim, start_length)
        shapes = {"planes": (3, dim, dim), "grid": (dim * dim,), "features": (19,)}
        self.obs_bounds = {"planes": (0, 255), "grid": (0.0, 3.0), "features": (-1.0, 1.0)}[observation]
        self.spaces = discrete_spaces(
            shapes[observation], "uint8" if observation == "planes" else "float32", 3 if relative_actions else 4
        )
        host = tables(dim, start_length, distance_to_border, self.rewards, starvation, relative_actions)
        self._tables = {torch.device("cpu"): host}

    def initial(self, noise: Tensor) -> State:
        """Return initial states from uniforms `[B, 3]`: head x, head y, food; two more with `max_start_length`."""
        constants, cells, length = self._constants(noise.device), self.dim**2, self.start_length
        x, y, rank = (noise[:, :3] * constants.choices).long().unbind(1)
        head = torch.add(x + self.distance_to_border * (self.dim + 1), y, alpha=self.dim)
        tail = head - (length - 1)
        window = constants.strip.unfold(0, cells + 2, 1).index_select(0, cells - 1 - head)
        state = {
            "board": window + constants.edge,
            "head": head,
            "tail": tail,
            "food": torch.add(rank, rank >= tail, alpha=length),
            "direction": torch.full_like(head, RIGHT),
            "length": torch.full_like(head, length),
            "now": torch.full_like(head, 4),
            "deadline": torch.full_like(head, 4 * (length + self.min_truncation_step)),
        }
        return state if self.long_starts is None else self.long_starts.initial(state, noise, constants)

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Step with actions `[B]`; the third of the uniforms `[B, 3]` or `[B, 5]` places the next food."""
        constants, board = self._constants(action.device), state["board"]
        head, tail, length, now = (state[name] for name in ("head", "tail", "length", "now"))
        direction = constants.turn.index_select(0, torch.add(action, state["direction"], alpha=4))
        target = constants.onward.index_select(0, torch.add(direction, head, alpha=4))
        died = board.gather(1, target[:, None]).squeeze(1) >= now
        eaten = target == state["food"]
        slides = died == eaten
        stamp = torch.add(now, length, alpha=4)
        moved = torch.where(died, head, target)
        board = self._marked(board, head, (stamp - 4 + direction).int(), moved)
        exit_ = board.gather(1, tail[:, None]).squeeze(1) & 3
        onward = constants.onward.index_select(0, torch.add(exit_, tail, alpha=4))
        after = {
            **state,
            "board": board,
            "head": moved,
            "tail": torch.where(slides, onward, tail),
            "direction": direction,
            "length": length + eaten,
            "now": torch.add(now, slides, alpha=4),
        }
        after["food"] = self._next_food(state["food"], eaten, after, noise[:, 2])
        after["deadline"] = self._next_deadline(state["deadline"], eaten, stamp, after["length"])
        terminated = died | (after["length"] == self.dim**2)
        paid = reward(self.rewards, constants, state, after, eaten, died)
        return after, paid, terminated, stamp >= after["deadline"]

    def observation(self, state: State) -> Tensor:
        """Return the observation `[B, *obs_shape]` in the chosen layout."""
        constants = self._constants(state["board"].device)
        match self.layout:
            case "planes":
                return planes(state, constants)
            case "grid":
                return grid(state, constants)
            case _:
                return features(state, constants)

    def info(self, state: State) -> dict[str, Tensor]:
        """Return the food eaten, the cells of the snake, and whether it fills the board (0 or 1), `[B]` each."""
        length = state["length"]
        food, full = length - state.get("start_length", self.start_length), (length == self.dim**2).long()
        return {"food": food, "snake_length": length, "full_board": full}

    def render(self, state: State, row: int, mode: str) -> Tensor | str:
        """Render one row: `rgb_array`, uint8 `[16 dim, 16 dim, 3]`, or `ansi`, one line of text per board row."""
        alone = {name: leaf[row : row + 1].cpu() for name, leaf in state.items()}
        board = grid(alone, self._constants(torch.device("cpu"))).view(self.dim, self.dim).long()
        return ansi(board, int(alone["direction"])) if mode == "ansi" else rgb_array(board)

    def _constants(self, device: torch.device) -> BoardTables:
        if device not in self._tables:
            self._tables[device] = self._tables[torch.device("cpu")].to(device)
        return self._tables[device]

    def _marked(self, board: Tensor, head: Tensor, mark: Tensor, moved: Tensor) -> Tensor:
        """Return the board after a move: mark the cell that the head leaves, then the head's. One pass if compiled."""
        if torch.compiler.is_compiling():
            place = self._constants(board.device).place
            board = torch.where(place == head[:, None], mark[:, None], board)
            return torch.where(place == moved[:, None], WALL, board)
        return board.scatter(1, head[:, None], mark[:, None]).scatter_(1, moved[:, None], WALL)

    def _next_food(self, food: Tensor, eaten: Tensor, after: State, uniform: Tensor) -> Tensor:
        """Move the food of rows that ate it. On a CPU, eager execution searches only those rows."""
        board, now, length = after["board"], after["now"], after["length"]
        if torch.compiler.is_compiling() or food.device.type != "cpu":
            return torch.where(eaten, self._free_cell(board, now, length, uniform), food)
        rows = eaten.nonzero().squeeze(1)
        if not rows.numel():
            return food
        few = (tensor.index_select(0, rows) for tensor in (board, now, length, uniform))
        return food.index_copy(0, rows, self._free_cell(*few))

    def _free_cell(self, board: Tensor, now: Tensor, length: Tensor, uniform: Tensor) -> Tensor:
        """Return a uniform free cell `[B]`: the k-th of n with k = floor(n u); the last place if none is free."""
        rank = (uniform * self._constants(board.device).free.index_select(0, length)).int()
        free = (board < now.int()[:, None]).cumsum(1, dtype=torch.int32)
        return (free <= rank[:, None]).sum(1)

    def _next_deadline(self, deadline: Tensor, eaten: Tensor, stamp: Tensor, length: Tensor) -> Tensor:
        if self.fixed_deadline:
            return deadline
        postponed = stamp + self._constants(deadline.device).starvation_limit.index_select(0, length)
        return torch.where(eaten, postponed, deadline)
