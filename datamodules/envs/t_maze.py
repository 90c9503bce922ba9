"""T-maze: a corridor whose first cell shows where the reward is, so that only a policy with memory finds it."""

import torch
from torch import Tensor

from datamodules.core.arguments import check_ranges
from datamodules.core.types import State, discrete_spaces
from datamodules.env_interface.cell_pictures import render_plan

UP, RIGHT, DOWN, LEFT = range(4)
"""The actions, in the order of `four_rooms`."""


class TMaze:
    """T-maze as a `TorchFuncEnv`: walk along a corridor, then turn to the side that its first cell showed.

    The corridor has `length` + 1 cells; the agent starts in the first and turns in the last, the junction. There `up`
    and `down` end the episode: with reward 4 on the side of the sign, else -0.1. A move into a wall has no effect and
    reward -0.1; other moves have reward 0. Actions: 0 up, 1 right, 2 down, 3 left. An episode reports `success`.

    Observation, float32 `[4]`: sign up, sign down (both only in the first cell), in the corridor, at the junction.
    A policy without memory reaches success 0.5.

    Args:
        length: moves from the first cell to the junction.
        time_limit: steps after which an episode is truncated; null: ten times the shortest episode.

    Raises: ConfigurationError if an argument is below 1.

    Source: Bakker 2001, "Reinforcement Learning with Long Short-Term Memory"; there observations have three numbers.
    """

    noise_size = 1
    episode_stat_keys = ("success",)
    obs_bounds = (0.0, 1.0)

    def __init__(self, length: int = 10, time_limit: int | None = None) -> None:
        self.length, self.time_limit = length, 10 * (length + 1) if time_limit is None else time_limit
        check_ranges(
            "TMaze",
            ("length", length, length >= 1, "at least 1 move"),
            ("time_limit", self.time_limit, self.time_limit >= 1, "at least 1 step, or null"),
        )
        self.min_truncation_step = self.time_limit
        self.spaces = discrete_spaces((4,), "float32", 4)

    def initial(self, noise: Tensor) -> State:
        """Return initial states from uniforms `[B, 1]`, which draw the side of the reward."""
        cell = torch.zeros_like(noise[:, 0], dtype=torch.int64)
        return {"cell": cell, "up": noise[:, 0] < 0.5, "step": cell.clone(), "success": cell > 0}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Step with actions `[B]`; the noise is not used."""
        cell, step = state["cell"], state["step"] + 1
        turns = (cell == self.length) & ((action == UP) | (action == DOWN))
        success = turns & ((action == UP) == state["up"])
        moved = (cell + (action == RIGHT).long() - (action == LEFT).long()).clamp(0, self.length)
        reward = torch.where(success, 4.0, torch.where(turns | (moved == cell), -0.1, 0.0))
        following = {"cell": moved, "up": state["up"], "step": step, "success": success}
        return following, reward, turns, step >= self.time_limit

    def observation(self, state: State) -> Tensor:
        """Return signs, corridor and junction, `[B, 4]`."""
        first, last = state["cell"] == 0, state["cell"] == self.length
        return torch.stack([first & state["up"], first & ~state["up"], ~first & ~last, last], 1).float()

    def render(self, state: State, row: int, mode: str) -> Tensor | str:
        """Render one row: `rgb_array`, uint8 `[120, 24 (length + 3), 3]`, or `ansi`, five lines of text.

        Walls are dark, the side of the reward is green (`G`), and the agent (`@`) is blue.
        """
        corridor, end = self.length + 1, [[*"#" * (self.length + 1), side, "#"] for side in " G"]
        reward_above = bool(state["up"][row])
        lines = [[*"#" * (corridor + 2)], end[reward_above], ["#", *" " * corridor, "#"], end[not reward_above]]
        lines.append([*"#" * (corridor + 2)])
        lines[2][1 + int(state["cell"][row])] = "@"
        return render_plan(lines, mode)

    def info(self, state: State) -> dict[str, Tensor]:
        """Return whether the agent turned to the side of the reward, `[B]`."""
        return {"success": state["success"].float()}
