"""Tables, observations and rendering of Snake.

The state is described in `datamodules.envs.snake.env`. Constants are looked up in tables instead of computed by
division, so that every device and compiler gives the same bits.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from datamodules.core.types import State
from datamodules.env_interface.cell_pictures import enlarge

WALL = 2**31 - 1
RIGHT = 1
CELL_PIXELS = 16
FEATURES = 19


class BoardTables(NamedTuple):
    """Constants of a game on one device; directions are ordered up, right, down, left, P is dim^2 + 2.

    onward: `[4 * P]`, the place after 4 * place + direction.   turn: `[16]`, the direction after 4 * direction +
    action. column_row: `[P, 2]` of a place.   compass: `[P, 4]`, its (-y, x, y, -x) / dim.
    choices: `[3]`, number of columns, rows and cells for the food at a start.
    strip: `[dim^2 + P - 1]`, initial snake in an endless row with its head at dim^2 - 1; a window is an initial board.
    edge: `[P]`, content of a board beyond its cells.   place: `[P]`, 0, 1, 2, and so on.
    one_hot_plane: `[2 * P - 1]` bytes, 255 in the middle; a window of it is a one-hot plane of one place.
    feature: `[3 * P + 4 + dim^2 + 1, 19]`, features by place of head, of tail and of food, by direction and by length,
        which are summed.   feature_start: `[5]`, the first row of each.
    feature_least, feature_most: `[19]` and a scalar, bounds of the sum.
    per_tick, free, starvation_limit, on_length: `[dim^2 + 1]`, by length: 255 / length in units of 2^-16, free cells,
        steps without food until truncation (in quarter ticks of the clock), length term of the reward.
    up: scalar, rounds such units up.   on_food, on_death, on_step, on_closer, on_farther: scalars, rewards.
    on_near: `[2 * dim + 1]`, by steps to the food.   on_inside: `[P]`, by place of the head.
    """

    onward: Tensor
    turn: Tensor
    column_row: Tensor
    compass: Tensor
    choices: Tensor
    strip: Tensor
    edge: Tensor
    place: Tensor
    one_hot_plane: Tensor
    feature: Tensor
    feature_start: Tensor
    feature_least: Tensor
    feature_most: Tensor
    per_tick: Tensor
    up: Tensor
    free: Tensor
    starvation_limit: Tensor
    on_length: Tensor
    on_food: Tensor
    on_death: Tensor
    on_step: Tensor
    on_closer: Tensor
    on_farther: Tensor
    on_near: Tensor
    on_inside: Tensor

    def to(self, device: torch.device) -> "BoardTables":
        """Return the same constants on another device."""
        return BoardTables(*(table.to(device) for table in self))


def starvation_limit(starvation: str | int, dim: int, length: int) -> int:
    """Return the steps until truncation for a snake of this length; "board" counts them from the episode's start."""
    if starvation == "length":
        return 100 + 10 * length
    return 2 * dim**2 if starvation == "board" else int(starvation)


def tables(
    dim: int, start_length: int, near: int, rewards: dict[str, float], starvation: str | int, relative_actions: bool
) -> BoardTables:
    """Compute the constants of a game, on the host."""
    with torch.device("cpu"):
        cells, starts, lengths = dim**2, dim - 1 - 2 * near, torch.arange(dim**2 + 1)
        strip, edge, spot = strips(cells, start_length)
        column_row = columns_rows(dim)
        x, y = (column_row / dim).unbind(1)
        compass = torch.stack((-y, x, y, -x), 1)
        return BoardTables(
            onward=moves(dim),
            turn=turns(relative_actions),
            column_row=column_row,
            compass=compass,
            choices=torch.tensor([starts, starts, cells - start_length]).float(),
            strip=strip,
            edge=edge,
            place=torch.arange(cells + 2),
            one_hot_plane=spot,
            feature=features_by_index(dim, compass, lengths / cells),
            feature_start=torch.tensor([0, cells + 2, 2 * cells + 4, 3 * cells + 6, 3 * cells + 10]),
            feature_least=torch.tensor([-1.0] * 4 + [0.0] * 8 + [-1.0] * 7),
            feature_most=torch.tensor(1.0),
            per_tick=(255 * 2**16 // lengths.clamp(min=1)).int(),
            up=torch.tensor(2**16 - 1, dtype=torch.int32),
            free=(cells - lengths).float(),
            starvation_limit=torch.tensor([4 * starvation_limit(starvation, dim, int(length)) for length in lengths]),
            on_length=lengths * rewards["length"],
            on_food=torch.tensor(rewards["food"] + rewards["step"] + rewards["survive"]),
            on_death=torch.tensor(rewards["death"] + rewards["step"]),
            on_step=torch.tensor(rewards["step"] + rewards["survive"]),
            on_closer=torch.tensor(rewards["closer"]),
            on_farther=torch.tensor(rewards["farther"]),
            on_near=torch.cat((torch.zeros(1), rewards["near"] / torch.arange(1, 2 * dim + 1))),
            on_inside=rewards["inside"] * torch.sigmoid((column_row.minimum(dim - 1 - column_row)).amin(1).float()),
        )


def strips(cells: int, start_length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return `strip`, `edge` and `one_hot_plane` of a board."""
    strip = torch.zeros(2 * cells + 1, dtype=torch.int32)
    strip[cells - start_length : cells - 1] = 4 * torch.arange(1, start_length) + RIGHT
    strip[cells - 1] = WALL
    edge = torch.zeros(cells + 2, dtype=torch.int32)
    edge[cells] = WALL
    spot = torch.zeros(2 * cells + 3, dtype=torch.uint8)
    spot[cells + 1] = 255
    return strip, edge, spot


def moves(dim: int) -> Tensor:
    """Return the place after each of 4 * place + direction, `[4 * P]`; moves out of the board lead to the wall."""
    place = torch.full((dim + 2, dim + 2), dim**2)
    place[1:-1, 1:-1] = torch.arange(dim**2).view(dim, dim)
    inside = slice(1, -1)
    onward = torch.stack((place[:-2, inside], place[inside, 2:], place[2:, inside], place[inside, :-2]), -1)
    return torch.cat((onward.flatten(), torch.full((8,), dim**2)))


def turns(relative_actions: bool) -> Tensor:
    """Return the direction after each of 4 * direction + action, `[16]`."""
    direction, action = torch.arange(16) // 4, torch.arange(16) % 4
    if relative_actions:
        return (direction + action - 1) % 4
    return torch.where((direction - action) % 4 == 2, direction, action)


def columns_rows(dim: int) -> Tensor:
    """Return column and row of every place, `[P, 2]`; the two beyond the board lie past its last corner."""
    along = torch.arange(dim)
    cells = torch.stack((along.repeat(dim), along.repeat_interleave(dim)), 1)
    return torch.cat((cells, torch.full((2, 2), dim)))


def features_by_index(dim: int, compass: Tensor, share: Tensor) -> Tensor:
    """Return the rows whose sum is the features: of the head, the tail, the food, the direction and the length."""
    places = len(compass)
    head, tail, food = (torch.zeros(places, FEATURES) for _ in range(3))
    direction, length = torch.zeros(4, FEATURES), torch.zeros(len(share), FEATURES)
    direction[:, :4] = torch.eye(4)
    food[:, 8:12], food[:, 12:14] = (compass * dim).round(), compass[:, 1:3]
    head[:, 8:14] = -food[:, 8:14]
    head[:, 15:17] = tail[:, 17:19] = compass[:, 1:3]
    length[:, 14] = share
    return torch.cat((head, tail, food, direction, length))


def neighbour_cells(state: State, constants: BoardTables) -> Tensor:
    """Return the content above, right, below and left of the head, int32 `[B, 4]`; `now` or more is wall or body."""
    return state["board"].gather(1, constants.onward.view(-1, 4).index_select(0, state["head"]))


def ticks(state: State) -> Tensor:
    """Return the clock ticks until each place becomes free, 0 or less for free places, int32 `[B, P]`."""
    return (state["board"] - (state["now"] - 4).int()[:, None]) >> 2


def planes(state: State, constants: BoardTables) -> Tensor:
    """Return head, body by remaining lifetime over length, food: bytes `[B, 3, dim, dim]`, 255 is one, rounded up."""
    length, cells = state["length"], len(constants.place) - 2
    life = ticks(state).minimum(length.int()[:, None]).clamp_(min=0)
    life = torch.addcmul(constants.up, life, constants.per_tick.index_select(0, length)[:, None]) >> 16
    spots = constants.one_hot_plane.unfold(0, cells, 1)
    head, food = (spots.index_select(0, cells + 1 - state[name]) for name in ("head", "food"))
    side = round(cells**0.5)
    return torch.stack((head, life[:, :cells].to(torch.uint8), food), 1).view(-1, 3, side, side)


def grid(state: State, constants: BoardTables) -> Tensor:
    """Return 0 free, 1 body, 2 head, 3 food, float32 `[B, dim * dim]`."""
    place, body = constants.place[:-2], ticks(state)[:, :-2] > 0
    return body.float() + (place == state["head"][:, None]) + (place == state["food"][:, None]) * 3.0


def features(state: State, constants: BoardTables) -> Tensor:
    """Return the nineteen numbers of the `features` observation, float32 `[B, 19]`; flags are clamped integers."""
    index = torch.stack([state[name] for name in ("head", "tail", "food", "direction", "length")], 1)
    if torch.compiler.is_compiling():
        shown = constants.feature[index + constants.feature_start].sum(1)
    else:
        shown = embedding_bag(index + constants.feature_start, constants.feature, mode="sum")
    shown[:, 4:8] = neighbour_cells(state, constants) - (state["now"] - 1)[:, None]
    return torch.clamp(shown, constants.feature_least, constants.feature_most)


def ansi(board: Tensor, direction: int) -> str:
    """Render a grid `[dim, dim]` as text: `.` free, `o` body, `*` food, the head an arrow; one line per board row."""
    signs = (".", "o", "^>v<"[direction], "*")
    return "\n".join("".join(signs[cell] for cell in row) for row in board.tolist())


def rgb_array(board: Tensor) -> Tensor:
    """Render a grid `[dim, dim]` as an image: uint8 `[16 dim, 16 dim, 3]`."""
    palette = torch.tensor([[24, 26, 32], [76, 160, 92], [170, 230, 120], [226, 84, 72]], dtype=torch.uint8)
    picture = palette[board]
    return enlarge(picture, CELL_PIXELS)
