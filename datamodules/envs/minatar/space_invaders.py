"""Space Invaders of MinAtar: shoot aliens that march down and shoot back."""

import torch
from torch import Tensor

from datamodules.core.types import State
from datamodules.envs.minatar.game import CELLS, FIRE, LEFT, NOOP, RIGHT, SIDE, RampingGame, content, walked

RELOAD = 5
SHOT_INTERVAL = 10
MOVE_INTERVAL = 12
FASTEST_WAVE = 6
BOTTOM = SIDE - 1


class SpaceInvaders(RampingGame):
    """Space Invaders: reward 1 for every alien shot; the game is over when an alien or a bullet meets the cannon.

    The cannon in the lowest row can fire every fifth step. Four rows of six aliens march to the left; at an edge they
    move down and turn, and the game is over if they were in the lowest row. They move every twelve steps, or after as
    many steps as there are aliens, if these are fewer. Every ten steps the lowest alien of the column nearest to the
    cannon, the left one of two, shoots. Bullets move by a cell each step. A new wave follows the last alien.
    Difficulty ramps with every wave: aliens move one step sooner, down to every six steps.

    Planes: cannon, alien, alien moving left, alien moving right, bullet of the cannon, bullet of an alien. Actions:
    no-op, left, right, fire. See `RampingGame` for the arguments.

    """

    channels = ("cannon", "alien", "alien_left", "alien_right", "friendly_bullet", "enemy_bullet")
    signs = "A#<>|!"
    effective_actions = (NOOP, LEFT, RIGHT, FIRE)
    draws = 0

    def make_tables(self) -> tuple[Tensor, ...]:
        """Return the first wave of aliens, and the columns."""
        wave = torch.zeros(SIDE, SIDE, dtype=torch.bool)
        wave[:4, 2:8] = True
        return wave.flatten(), torch.arange(SIDE)

    def start(self, noise: Tensor) -> State:
        """Return the game at its start."""
        ones = torch.ones(len(noise), dtype=torch.int64, device=noise.device)
        wave, _ = self.tables.on(noise.device)
        empty = torch.zeros(len(noise), CELLS, dtype=torch.bool, device=noise.device)
        return {
            "cannon": ones * 5,
            "reload": torch.zeros_like(ones),
            "aliens": empty | wave,
            "bullets": empty,
            "enemy_bullets": empty.clone(),
            "direction": -ones,
            "move_interval": ones * MOVE_INTERVAL,
            "move_wait": ones * MOVE_INTERVAL,
            "shot_wait": ones * SHOT_INTERVAL,
        }

    def play(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor]:
        """Move cannon, bullets and aliens, let aliens shoot, and remove those that were shot."""
        fires = (action == FIRE) & (state["reload"] == 0)
        cannon = walked(state["cannon"], action, LEFT, RIGHT)
        floor = torch.full_like(cannon, BOTTOM)
        bullets = lowered(state["bullets"] | (self.cell(cannon, floor) & fires[:, None]), -1)
        enemy_bullets = lowered(state["enemy_bullets"], 1)
        over = content(enemy_bullets, cannon, floor) | content(state["aliens"], cannon, floor)
        aliens, direction, moves, landed = self._marched(state)
        over = over | landed | (content(aliens, cannon, floor) & moves)
        count = state["aliens"].sum(1)
        move_wait = torch.where(moves, torch.minimum(count, state["move_interval"]), state["move_wait"])
        shoots = state["shot_wait"] == 0
        enemy_bullets = enemy_bullets | (self._nearest_alien(aliens, cannon) & shoots[:, None])
        shot = aliens & bullets
        aliens = aliens & ~shot
        cleared = ~aliens.any(1)
        faster = cleared & (state["move_interval"] > FASTEST_WAVE) & self.difficulty_ramping
        wave, _ = self.tables.on(cannon.device)
        after = {
            "cannon": cannon,
            "reload": (torch.where(fires, RELOAD, state["reload"]) - 1).clamp(min=0),
            "aliens": aliens | (wave & cleared[:, None]),
            "bullets": bullets & ~shot,
            "enemy_bullets": enemy_bullets,
            "direction": direction,
            "move_interval": state["move_interval"] - faster.long(),
            "move_wait": move_wait - 1,
            "shot_wait": torch.where(shoots, SHOT_INTERVAL, state["shot_wait"]) - 1,
        }
        return after, shot.sum(1).float(), over

    def planes(self, state: State) -> list[Tensor]:
        """Return the boards of cannon, aliens by direction, and bullets."""
        cannon, aliens, left = state["cannon"], state["aliens"], (state["direction"] < 0)[:, None]
        floor = torch.full_like(cannon, BOTTOM)
        bullets = state["bullets"], state["enemy_bullets"]
        return [self.cell(cannon, floor), aliens, aliens & left, aliens & ~left, *bullets]

    def _marched(self, state: State) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return aliens and direction after their move, whether they move, and whether they leave the lowest row."""
        aliens, direction, moves = state["aliens"], state["direction"], state["move_wait"] == 0
        board = aliens.view(-1, SIDE, SIDE)
        left = direction < 0
        edge = torch.where(left, board[:, :, 0].any(1), board[:, :, -1].any(1))
        turns = moves & edge
        sideways = torch.where(left[:, None, None], board.roll(-1, 2), board.roll(1, 2))
        moved = torch.where(turns[:, None, None], board.roll(1, 1), sideways)
        aliens = torch.where(moves[:, None], moved.view(-1, CELLS), aliens)
        return aliens, torch.where(turns, -direction, direction), moves, turns & board[:, -1].any(1)

    def _nearest_alien(self, aliens: Tensor, cannon: Tensor) -> Tensor:
        """Return boards with only the lowest alien of the column nearest to the cannon; the left one of two."""
        _, line = self.tables.on(aliens.device)
        board = aliens.view(-1, SIDE, SIDE)
        distance = 2 * (line - cannon[:, None]).abs() + (line > cannon[:, None]).long()
        column = torch.where(board.any(1), distance, 3 * SIDE).argmin(1)
        filled = board.gather(2, column[:, None, None].expand(-1, SIDE, 1)).squeeze(2)
        row = torch.where(filled, line, -1).amax(1)
        return self.cell(column, row)


def lowered(board: Tensor, rows: int) -> Tensor:
    """Return boards `[B, 100]` whose content moved down by one row (1) or up (-1); what leaves the board is gone."""
    empty = torch.zeros_like(board[:, :SIDE])
    return torch.cat((empty, board[:, :-SIDE]) if rows > 0 else (board[:, SIDE:], empty), 1)
