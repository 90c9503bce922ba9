"""MinAtarGame: base class of the MinAtar games, with sticky actions, action sets, planes and rendering."""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import State, discrete_spaces
from datamodules.env_interface.cell_pictures import enlarge
from datamodules.env_interface.device_constants import DeviceConstants

ACTIONS = ("no-op", "left", "up", "right", "down", "fire")
"""The six actions of every game, in the order of their codes."""

NOOP, LEFT, UP, RIGHT, DOWN, FIRE = range(len(ACTIONS))

SIDE = 10
"""Rows and columns of the board."""

CELLS = SIDE * SIDE
CELL_PIXELS = 16

PALETTE = (
    (24, 26, 32), (76, 160, 92), (240, 200, 90), (90, 110, 150), (210, 80, 70), (150, 110, 200),
    (80, 180, 200), (220, 140, 60), (160, 200, 220), (230, 130, 180), (240, 240, 240),
)  # fmt: skip
"""Colours of an empty cell and of the planes in their order."""


class MinAtarGame(ABC):
    """Game on a board of 10 by 10 cells as a `TorchFuncEnv`; a subclass defines its rules.

    Observation: one plane per channel, `[channels, 10, 10]` in bytes, 1 where the object is; `minatar` has the channels
    last. An episode's first action can only be replaced by the no-op, whereas `minatar` repeats the last action of the
    episode before.

    Args:
        sticky_action_prob: probability that the last executed action is repeated instead of the chosen one, in [0, 1].
        minimal_actions: offer only the actions that have an effect in the game; else all of `ACTIONS`.
        time_limit: steps after which an episode is truncated; None, as in `minatar`, never truncates.

    Attributes:
        channels: names of the planes.   signs: their letters in the rendering as text.
        effective_actions: codes of the actions that have an effect.
        draws: uniforms of a step and of a start, beside that of the sticky action.
        tables: constant tensors of the rules, from `make_tables`.

    Raises: ConfigurationError if an argument is out of range.
    """

    channels: ClassVar[tuple[str, ...]]
    signs: ClassVar[str]
    effective_actions: ClassVar[tuple[int, ...]]
    draws: ClassVar[int]
    episode_stat_keys = ()
    obs_bounds = (0, 1)

    def __init__(
        self, sticky_action_prob: float = 0.1, minimal_actions: bool = True, time_limit: int | None = None
    ) -> None:
        name = type(self).__name__
        if not 0 <= sticky_action_prob <= 1:
            raise ConfigurationError(
                f"{name} has sticky_action_prob {sticky_action_prob}; choose a probability from 0 to 1."
            )
        if time_limit is not None and time_limit < 1:
            raise ConfigurationError(f"{name} has time_limit {time_limit}; choose at least 1 step, or null for none.")
        self.sticky_action_prob, self.min_truncation_step = sticky_action_prob, time_limit
        self.noise_size = 1 + self.draws
        codes = self.effective_actions if minimal_actions else tuple(range(len(ACTIONS)))
        self.spaces = discrete_spaces((len(self.channels), SIDE, SIDE), "uint8", len(codes))
        self._constants = DeviceConstants(torch.tensor(codes), torch.arange(CELLS))
        self.tables = DeviceConstants(*self.make_tables())

    def make_tables(self) -> tuple[Tensor, ...]:
        """Return the constant tensors of the rules, which `tables` holds on every device; there are none by default."""
        return ()

    @abstractmethod
    def start(self, noise: Tensor) -> State:
        """Return the game at its start, from uniforms `[B, draws]`."""

    @abstractmethod
    def play(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor]:
        """Return the game after a step, its reward `[B]` and whether the game is over, bool `[B]`.

        Args:
            action: codes of the executed actions `[B]`.   noise: uniforms `[B, draws]`.
        """

    @abstractmethod
    def planes(self, state: State) -> list[Tensor]:
        """Return one board, bool `[B, 100]`, per channel."""

    def initial(self, noise: Tensor) -> State:
        """Return initial states from uniforms `[B, noise_size]`."""
        none = torch.zeros_like(noise[:, 0], dtype=torch.int64)
        return {**self.start(noise[:, 1:]), "last_action": none, "steps": none.clone()}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Step with actions `[B]`; the first of the uniforms `[B, noise_size]` decides whether the action sticks."""
        codes, _ = self._constants.on(action.device)
        sticks = noise[:, 0] < self.sticky_action_prob
        executed = torch.where(sticks, state["last_action"], codes.index_select(0, action))
        after, reward, over = self.play(state, executed, noise[:, 1:])
        steps, limit = state["steps"] + 1, self.min_truncation_step
        truncated = torch.zeros_like(over) if limit is None else steps >= limit
        return {**after, "last_action": executed, "steps": steps}, reward.float(), over, truncated

    def observation(self, state: State) -> Tensor:
        """Return the planes, uint8 `[B, channels, 10, 10]`."""
        planes = torch.stack(self.planes(state), 1)
        return planes.view(len(planes), -1, SIDE, SIDE).to(torch.uint8)

    def info(self, state: State) -> dict[str, Tensor]:
        """Return an empty info."""
        return {}

    def render(self, state: State, row: int, mode: str) -> Tensor | str:
        """Render one row: `rgb_array`, uint8 `[160, 160, 3]`, or `ansi`, one line of text per board row."""
        planes = self.observation({name: leaf[row : row + 1].cpu() for name, leaf in state.items()})[0]
        order = torch.arange(1, len(planes) + 1, dtype=torch.uint8)
        shown = (planes * order[:, None, None]).amax(0).long()
        if mode == "ansi":
            return "\n".join("".join(("." + self.signs)[cell] for cell in line) for line in shown.tolist())
        picture = torch.tensor(PALETTE, dtype=torch.uint8)[shown]
        return enlarge(picture, CELL_PIXELS)

    def cell(self, x: Tensor, y: Tensor) -> Tensor:
        """Return boards, bool `[B, 100]`, on which only the cells at columns and rows `[B]` are marked."""
        _, cells = self._constants.on(x.device)
        return cells == torch.add(x, y, alpha=SIDE)[:, None]


class RampingGame(MinAtarGame):
    """MinAtar game that becomes more difficult in the course of an episode.

    Args:
        difficulty_ramping: whether it does.   Others: see `MinAtarGame`.
    """

    def __init__(
        self,
        sticky_action_prob: float = 0.1,
        difficulty_ramping: bool = True,
        minimal_actions: bool = True,
        time_limit: int | None = None,
    ) -> None:
        super().__init__(sticky_action_prob, minimal_actions, time_limit)
        self.difficulty_ramping = difficulty_ramping


def marked(x: Tensor, y: Tensor, shown: Tensor) -> Tensor:
    """Return boards, bool `[B, 100]`, with the cells of N objects marked.

    Args:
        x, y: columns and rows `[B, N]`; objects outside the board are left out.
        shown: whether to mark the object, bool `[B, N]`.
    """
    inside = shown & (x >= 0) & (x < SIDE)
    place = torch.where(inside, torch.add(x, y, alpha=SIDE), CELLS)
    board = torch.zeros(len(x), CELLS + 1, dtype=torch.bool, device=x.device)
    return board.scatter(1, place, True)[:, :CELLS]


def content(board: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the content `[B]` of the cells of boards `[B, 100]` at columns and rows `[B]`."""
    return board.gather(1, torch.add(x, y, alpha=SIDE)[:, None]).squeeze(1)


def walked(position: Tensor, action: Tensor, less: int, more: int, low: int = 0, high: int = SIDE - 1) -> Tensor:
    """Return positions `[B]` after a move by one cell: back for the action `less`, onward for `more`, within bounds."""
    return (position + (action == more).long() - (action == less).long()).clamp(low, high)
