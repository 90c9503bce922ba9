"""Asterix of MinAtar: collect treasure and avoid enemies that cross the board."""

import torch
from torch import Tensor

from datamodules.core.types import State
from datamodules.envs.minatar.game import DOWN, LEFT, NOOP, RIGHT, SIDE, UP, RampingGame, marked, walked

ROWS = 8
SPAWN_INTERVAL = 10
MOVE_INTERVAL = 5
RAMP_INTERVAL = 100


class Asterix(RampingGame):
    """Asterix: reward 1 for every treasure; the game is over when the player meets an enemy.

    The rows 1 to 8 hold one object each at most. Every ten steps one appears in an empty row, at the left or the right
    edge, a treasure with probability 1/3 and else an enemy; objects move across the board by one cell every five steps.
    Difficulty ramps every 101 steps: objects appear one step sooner, and every second time also move one step sooner,
    down to every step.

    Planes: player, enemy, trail (the cell behind an object), gold. Actions: no-op, left, up, right, down. See
    `RampingGame` for the arguments.

    """

    channels = ("player", "enemy", "trail", "gold")
    signs = "@x,$"
    effective_actions = (NOOP, LEFT, UP, RIGHT, DOWN)
    draws = 3

    def make_tables(self) -> tuple[Tensor, ...]:
        """Return the rows of the objects."""
        return (torch.arange(1, ROWS + 1),)

    def start(self, noise: Tensor) -> State:
        """Return the game at its start, an empty board."""
        ones = torch.ones_like(noise[:, 0], dtype=torch.int64)
        empty = torch.zeros(len(noise), ROWS, dtype=torch.bool, device=noise.device)
        return {
            "player_x": ones * 5,
            "player_y": ones * 5,
            "x": torch.zeros_like(empty, dtype=torch.int64),
            "present": empty,
            "rightward": empty.clone(),
            "gold": empty.clone(),
            "spawn_interval": ones * SPAWN_INTERVAL,
            "spawn_wait": ones * SPAWN_INTERVAL,
            "move_interval": ones * MOVE_INTERVAL,
            "move_wait": ones * MOVE_INTERVAL,
            "ramp_wait": ones * RAMP_INTERVAL,
            "ramps": torch.zeros_like(ones),
        }

    def play(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor]:
        """Let an object appear, move the player, then the objects; uniforms: side, kind, row."""
        state = state | spawned(state, noise)
        player_x = walked(state["player_x"], action, LEFT, RIGHT)
        player_y = walked(state["player_y"], action, UP, DOWN, 1, ROWS)
        here = self.tables.on(action.device)[0] == player_y[:, None]
        x, present, gold = state["x"], state["present"], state["gold"]
        met = present & here & (x == player_x[:, None])
        present = present & ~(met & gold)
        moves = state["move_wait"] == 0
        x = torch.where(moves[:, None], x + 2 * state["rightward"].long() - 1, x)
        present = present & (x >= 0) & (x < SIDE)
        met_again = present & here & (x == player_x[:, None]) & moves[:, None]
        present = present & ~(met_again & gold)
        reward = ((met & gold).sum(1) + (met_again & gold).sum(1)).float()
        over = ((met | met_again) & ~gold).any(1)
        after = state | {"player_x": player_x, "player_y": player_y, "x": x, "present": present}
        after["spawn_wait"] = state["spawn_wait"] - 1
        after["move_wait"] = torch.where(moves, state["move_interval"], state["move_wait"]) - 1
        return after | (ramped(after) if self.difficulty_ramping else {}), reward, over

    def planes(self, state: State) -> list[Tensor]:
        """Return the boards of player, enemies, trails and treasures."""
        x, present, gold = state["x"], state["present"], state["gold"]
        rows = self.tables.on(x.device)[0].expand_as(x)
        behind = x + 1 - 2 * state["rightward"].long()
        return [
            self.cell(state["player_x"], state["player_y"]),
            marked(x, rows, present & ~gold),
            marked(behind, rows, present),
            marked(x, rows, present & gold),
        ]


def spawned(state: State, noise: Tensor) -> State:
    """Return the objects and the waiting time after one appeared in a uniform empty row, if it is time and one is."""
    due, free = state["spawn_wait"] == 0, ~state["present"]
    rank = (noise[:, 2] * free.sum(1)).long()
    new = free & (free.cumsum(1) - 1 == rank[:, None]) & due[:, None]
    rightward, gold = (noise[:, 0] < 1 / 2)[:, None], (noise[:, 1] < 1 / 3)[:, None]
    return {
        "x": torch.where(new, torch.where(rightward, 0, SIDE - 1), state["x"]),
        "present": state["present"] | new,
        "rightward": torch.where(new, rightward, state["rightward"]),
        "gold": torch.where(new, gold, state["gold"]),
        "spawn_wait": torch.where(due, state["spawn_interval"], state["spawn_wait"]),
    }


def ramped(state: State) -> State:
    """Return intervals, waiting time and number of ramps after one step of ramping."""
    spawn, move, wait, ramps = (state[name] for name in ("spawn_interval", "move_interval", "ramp_wait", "ramps"))
    ramping = (spawn > 1) | (move > 1)
    due = ramping & (wait < 0)
    return {
        "spawn_interval": spawn - (due & (spawn > 1)).long(),
        "move_interval": move - (due & (move > 1) & (ramps % 2 == 1)).long(),
        "ramp_wait": torch.where(due, RAMP_INTERVAL, wait - (ramping & ~due).long()),
        "ramps": ramps + due.long(),
    }
