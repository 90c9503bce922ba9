"""Rewards of Snake: terms by name, tables of them by name, and their sum for a step."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import State
from datamodules.envs.snake.observations import BoardTables, neighbour_cells

TERMS = ("food", "death", "step", "survive", "closer", "farther", "length", "danger", "near", "inside")
REWARDS: dict[str, dict[str, float]] = {
    "plain": {"food": 1.0, "death": -1.0},
    "classic": {"food": 15.0, "death": -1000.0, "step": 0.01},
    "shaped": {
        "food": 10.0,
        "death": -10.0,
        "survive": 0.01,
        "closer": 0.1,
        "farther": -0.1,
        "length": 0.01,
        "danger": -0.05,
    },
    "engine": {"food": 70.0, "death": -1000.0, "step": -0.001, "near": 3.0, "inside": 1.0},
}
"""Tables by name: `plain` is the default; the others are those of an earlier Snake and of its successors."""


def resolve_reward_table(rewards: str | Mapping[str, float]) -> dict[str, float]:
    """Return every term's amount, from a table's name or from amounts by name; missing terms are 0.

    Raises:
        ConfigurationError: if there is no such table or term, or an amount is not a finite number.
    """
    if isinstance(rewards, str) and rewards not in REWARDS:
        raise ConfigurationError(f"Snake has no rewards {rewards!r}; choose {', '.join(REWARDS)}, or amounts by term.")
    table = REWARDS[rewards] if isinstance(rewards, str) else rewards
    for name, amount in table.items():
        if name not in TERMS:
            raise ConfigurationError(f"Snake has no reward term {name!r}; choose from {', '.join(TERMS)}.")
        if isinstance(amount, bool) or not isinstance(amount, int | float) or not math.isfinite(amount):
            raise ConfigurationError(f"Snake's reward {name} is {amount!r}; give it a finite number.")
    return {name: float(table.get(name, 0.0)) for name in TERMS}


def reward(
    amount: dict[str, float], constants: BoardTables, before: State, after: State, eaten: Tensor, died: Tensor
) -> Tensor:
    """Return the sum of the terms, float32 `[B]`; each term is exact in float32, with or without fused multiply-add."""
    total = torch.where(eaten, constants.on_food, torch.where(died, constants.on_death, constants.on_step))
    if amount["length"]:
        total = total + constants.on_length.index_select(0, after["length"]) * ~died
    if amount["danger"]:
        surrounded = (neighbour_cells(after, constants) >= after["now"][:, None]).sum(1) >= 3
        total = torch.add(total, surrounded & ~died, alpha=amount["danger"])
    if amount["closer"] or amount["farther"]:
        compass = constants.compass
        toward = compass.index_select(0, before["food"]) - compass.index_select(0, before["head"])
        closer = toward.gather(1, after["direction"][:, None]).squeeze(1) > 0
        nearing = torch.where(closer, constants.on_closer, constants.on_farther)
        total = total + nearing * ~died
    if amount["near"]:
        head, food = (constants.column_row.index_select(0, place) for place in (after["head"], before["food"]))
        total = total + constants.on_near.index_select(0, (head - food).abs().sum(1)) * ~died
    if amount["inside"]:
        total = total + constants.on_inside.index_select(0, after["head"]) * ~died
    return total
