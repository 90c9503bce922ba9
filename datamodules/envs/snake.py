"""Snake on a square board: eat, grow, touch neither a wall nor yourself.

How the state makes a step cheap. The board has a border of wall cells, so that nothing checks bounds. A body cell holds
`4 * expiry + exit`: when it becomes free, on a clock of its own row, and the direction in which the head left it. The
clock stands still on a step that eats, and that is how the snake grows; so no step passes over the board to age it, and
the tail follows the exits. Time counts in quarters of a clock tick, the unit of the cells: a cell is occupied exactly
if it holds at least `now`. Walls and the head hold `WALL`, which never expires; the head's cell learns its expiry and
exit when the head leaves it.
"""

from typing import Literal

import torch
from torch import Tensor

from datamodules.envs.snake_board import (
    RIGHT,
    WALL,
    Tables,
    ansi,
    blocked,
    features,
    grid,
    patience,
    planes,
    rgb_array,
    tables,
)
from datamodules.types import Spaces, State, UsageError

REWARD_TERMS = ("food", "death", "step", "survive", "closer", "farther", "length", "danger")
LONGEST_EPISODE = 2**29 - 2**16


def check_arguments(
    dim: int, start_length: int, near: int, observation: str, rewards: dict[str, float], starvation: str | int
) -> None:
    """Raise a UsageError of one sentence for the first argument that is out of range."""
    if near < 0 or dim <= 2 * near + 1:
        raise UsageError(
            f"Snake's head cannot start {near} cells from the border of a board of dim {dim}; "
            f"choose distance_to_border from 0 to {max((dim - 2) // 2, 0)}, and dim at least 2."
        )
    if not 1 <= start_length <= near + 1:
        raise UsageError(
            f"Snake of start_length {start_length} does not fit between its first head and the border; "
            f"choose start_length from 1 to distance_to_border + 1 = {near + 1}."
        )
    if observation not in ("planes", "grid", "features"):
        raise UsageError(f"Snake has no observation {observation!r}; choose planes, grid or features.")
    for name in rewards:
        if name not in REWARD_TERMS:
            raise UsageError(f"Snake has no reward term {name!r}; choose from {', '.join(REWARD_TERMS)}.")
    if isinstance(starvation, bool) or (starvation not in ("length", "board") and not isinstance(starvation, int)):
        raise UsageError(f"Snake has no starvation {starvation!r}; choose length, board or a number of steps.")
    if patience(starvation, dim, 1) < 1:
        raise UsageError(f"Snake's starvation is {starvation} steps; choose at least 1.")
    if dim**2 * patience(starvation, dim, dim**2) >= LONGEST_EPISODE:
        raise UsageError(
            f"Snake with dim {dim} and starvation {starvation!r} allows episodes of more than {LONGEST_EPISODE} steps, "
            "the most its clock counts; choose a smaller dim or starvation."
        )


class Snake:
    """Snake as a `TensorEnv`: every row a game of its own.

    Actions: 0 up, 1 right, 2 down, 3 left; turning back on itself is replaced by going straight on. With
    `relative_actions`: 0 left, 1 straight on, 2 right of the current direction. The snake starts heading right, its
    head uniform in `range(distance_to_border, dim - 1 - distance_to_border)` on both axes, its body to the left. One
    food lies on a uniformly drawn free cell. Eating it adds a cell at the tail and draws the next. Hitting a wall or
    the body ends the episode (terminated), as does filling the board; the tail's cell counts as body although the tail
    would leave it. A snake that dies stays where it is, and steps after an end move nothing.

    Observations, float32: `planes` `[3, dim, dim]` (head; body, each cell by the share of the length after which it
    becomes free; food), `grid` `[dim * dim]` (0 free, 1 body, 2 head, 3 food), or `features` `[19]`: direction one-hot,
    blocked neighbours and side of the food (4 flags each: up, right, down, left), food minus head x and y over dim,
    length over dim^2, then x and y over dim of head and tail.

    Args:
        dim: cells along one side.
        start_length: cells of the snake at the start, head included.
        distance_to_border: fewest cells between the first head and the left or upper border.
        rewards: amounts by name, replacing the default `{"food": 1.0, "death": -1.0}`; what is missing costs nothing.
            `food` and `death` on those steps, `step` on every step, `survive` on all but the fatal one; on steps
            survived also `closer` or `farther` (distance to the food that lay there before the step, so eating is
            closer), `length` (times the cells of the snake) and `danger` (if three or more neighbours are blocked).
        starvation: when an episode is truncated: "length", after 100 + 10 * length steps without food; a number, after
            so many; "board", 2 * dim^2 steps after its start, whatever it ate.

    Raises:
        UsageError: if an argument is out of range.
    """

    noise_size = 3
    episode_keys = ("food", "snake_length")

    def __init__(
        self,
        dim: int = 10,
        start_length: int = 3,
        distance_to_border: int = 3,
        observation: Literal["planes", "grid", "features"] = "planes",
        rewards: dict[str, float] | None = None,
        starvation: Literal["length", "board"] | int = "length",
        relative_actions: bool = False,
    ) -> None:
        rewards = {"food": 1.0, "death": -1.0} if rewards is None else rewards
        check_arguments(dim, start_length, distance_to_border, observation, rewards, starvation)
        self.dim, self.start_length, self.distance_to_border = dim, start_length, distance_to_border
        self.layout, self.relative_actions = observation, relative_actions
        self.rewards = {name: float(rewards.get(name, 0.0)) for name in REWARD_TERMS}
        self.fixed_deadline = starvation == "board"
        self.shortest_truncation = patience(starvation, dim, start_length)
        shapes = {"planes": (3, dim, dim), "grid": (dim * dim,), "features": (19,)}
        self.obs_bounds = {"planes": (0.0, 1.0), "grid": (0.0, 3.0), "features": (-1.0, 1.0)}[observation]
        self.spaces = Spaces(
            obs_shape=shapes[observation],
            obs_dtype="float32",
            action_kind="discrete",
            action_sizes=[3 if relative_actions else 4],
            action_low=[],
            action_high=[],
            action_start=[0],
            agents=1,
        )
        host = tables(dim, start_length, self.rewards, starvation, relative_actions)
        self._tables = {torch.device("cpu"): host}

    def initial(self, noise: Tensor) -> State:
        """First states from uniforms `[B, 3]`: head x, head y, food."""
        constants, width, length = self._constants(noise.device), self.dim + 2, self.start_length
        near = self.distance_to_border
        x, y = (noise[:, :2] * (self.dim - 1 - 2 * near)).long().unbind(1)
        head = torch.add(x + (near + 1) * (width + 1), y, alpha=width)
        tail_rank = torch.add(x + (near * (self.dim + 1) + 1 - length), y, alpha=self.dim)
        rank = (noise[:, 2] * (self.dim**2 - length)).long()
        food = constants.cell.index_select(0, torch.add(rank, rank >= tail_rank, alpha=length))
        window = constants.strip.unfold(0, width**2, 1).index_select(0, width**2 - 1 - head)
        return {
            "board": window + constants.walls,
            "head": head,
            "tail": head - (length - 1),
            "food": food,
            "direction": torch.full_like(head, RIGHT),
            "length": torch.full_like(head, length, dtype=torch.int32),
            "now": torch.full_like(head, 4, dtype=torch.int32),
            "deadline": torch.full_like(head, 4 * (length + self.shortest_truncation), dtype=torch.int32),
        }

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """One step for actions `[B]`; of the uniforms `[B, 3]` the last places the next food."""
        constants = self._constants(action.device)
        head, tail, length, now = (state[name] for name in ("head", "tail", "length", "now"))
        direction = constants.turn.index_select(0, torch.add(action, state["direction"], alpha=4))
        target = head + constants.offset.index_select(0, direction)
        died = state["board"].gather(1, target[:, None]).squeeze(1) >= now
        moved, eaten = ~died, target == state["food"]
        slides = moved ^ eaten
        stamp = torch.add(now, length, alpha=4)
        board = state["board"].clone()
        board.scatter_(1, head[:, None], (stamp + constants.exit.index_select(0, direction))[:, None])
        after_head = torch.where(moved, target, head)
        board.scatter_(1, after_head[:, None], WALL)
        exit_ = board.gather(1, tail[:, None]).squeeze(1) & constants.exit_bits
        onward = tail + constants.offset.index_select(0, exit_)
        after = {
            "board": board,
            "head": after_head,
            "tail": torch.where(slides, onward, tail),
            "direction": direction,
            "length": length + eaten,
            "now": torch.add(now, slides, alpha=4),
        }
        after["food"] = self._next_food(state["food"], eaten, after, noise[:, 2])
        after["deadline"] = self._next_deadline(state["deadline"], eaten, stamp, after["length"])
        terminated = died | (after["length"] == constants.full)
        return after, self._reward(state, after, eaten, died), terminated, stamp >= after["deadline"]

    def observation(self, state: State) -> Tensor:
        """Observation `[B, *obs_shape]` in the chosen layout."""
        constants = self._constants(state["head"].device)
        match self.layout:
            case "planes":
                return planes(state, constants)
            case "grid":
                return grid(state, constants)
            case _:
                return features(state, constants)

    def info(self, state: State) -> dict[str, Tensor]:
        """Food eaten and cells of the snake, `[B]` each."""
        return {"food": state["length"] - self.start_length, "snake_length": state["length"]}

    def render(self, state: State, row: int, mode: str) -> Tensor | str:
        """Picture of one row: `rgb_array`, uint8 `[16 dim, 16 dim, 3]`, or `ansi`, one line of text a board row."""
        alone = {name: leaf[row : row + 1].cpu() for name, leaf in state.items()}
        board = grid(alone, self._constants(alone["head"].device)).view(self.dim, self.dim).long()
        return ansi(board, int(alone["direction"])) if mode == "ansi" else rgb_array(board)

    def _constants(self, device: torch.device) -> Tables:
        if device not in self._tables:
            self._tables[device] = self._tables[torch.device("cpu")].to(device)
        return self._tables[device]

    def _next_food(self, food: Tensor, eaten: Tensor, after: State, uniform: Tensor) -> Tensor:
        """Move the food where it was eaten. Eager on a CPU only those rows are searched, with the same result."""
        board, now, length = after["board"], after["now"], after["length"]
        if torch.compiler.is_compiling() or food.device.type != "cpu":
            return torch.where(eaten, self._free_cell(board, now, length, uniform), food)
        rows = eaten.nonzero().squeeze(1)
        if not rows.numel():
            return food
        few = (tensor.index_select(0, rows) for tensor in (board, now, length, uniform))
        return food.index_copy(0, rows, self._free_cell(*few))

    def _free_cell(self, board: Tensor, now: Tensor, length: Tensor, uniform: Tensor) -> Tensor:
        """Uniform free cell `[B]`: the k-th of n with k = floor(n u); the last corner of the border if none is left."""
        rank = (uniform * self._constants(board.device).free.index_select(0, length)).int()
        free = (board < now[:, None]).cumsum(1, dtype=torch.int32)
        return torch.searchsorted(free, rank[:, None], right=True).squeeze(1)

    def _next_deadline(self, deadline: Tensor, eaten: Tensor, stamp: Tensor, length: Tensor) -> Tensor:
        if self.fixed_deadline:
            return deadline
        postponed = stamp + self._constants(deadline.device).patience.index_select(0, length)
        return torch.where(eaten, postponed, deadline)

    def _reward(self, before: State, after: State, eaten: Tensor, died: Tensor) -> Tensor:
        """Sum of the terms; each summand is exact in float32, with or without fused multiply-add."""
        constants = self._constants(died.device)
        reward = torch.where(eaten, constants.on_food, torch.where(died, constants.on_death, constants.on_step))
        if self.rewards["length"]:
            reward = reward + constants.on_length.index_select(0, after["length"]) * ~died
        if self.rewards["danger"]:
            surrounded = blocked(after, constants).sum(1) >= 3
            reward = torch.add(reward, surrounded & ~died, alpha=self.rewards["danger"])
        if self.rewards["closer"] or self.rewards["farther"]:
            compass = constants.compass
            toward = compass.index_select(0, before["food"]) - compass.index_select(0, before["head"])
            closer = toward.gather(1, after["direction"][:, None]).squeeze(1) > 0
            nearing = torch.where(closer, constants.on_closer, constants.on_farther)
            reward = reward + nearing * ~died
        return reward
