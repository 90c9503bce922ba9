"""Seaquest of MinAtar: rescue divers, shoot fish and submarines, and surface before the oxygen is used up."""

import torch
from torch import Tensor

from datamodules.core.types import State
from datamodules.envs.minatar.game import (
    CELLS,
    DOWN,
    FIRE,
    LEFT,
    NOOP,
    RIGHT,
    SIDE,
    UP,
    RampingGame,
    content,
    marked,
    walked,
)

RAMP_LIMITS = (1, 2)
"""Shortest intervals between two enemies and between two moves of an enemy."""

OXYGEN = 200
SPAWN_INTERVAL, DIVER_INTERVAL = 20, 30
MOVE_INTERVAL, DIVER_MOVE_INTERVAL = 5, 5
RELOAD, SHOT_INTERVAL = 5, 10
CREW = 6
DEPTHS = 8
BOTTOM = SIDE - 1

ENEMIES, DIVERS, BULLETS = 30, 2, 2
"""Slots, the newest object first. An enemy lives for at most 30 steps when one appears in every step, a diver for 60
when one appears in every 30, a bullet for 9 when one is fired in every 5: the last slot is empty when one is added."""

ENEMY = ("x", "y", "rightward", "is_sub", "alive", "move_wait", "shot_wait")
DIVER = ("diver_x", "diver_y", "diver_rightward", "diver_alive", "diver_wait")
BULLET = ("bullet_x", "bullet_y", "bullet_rightward", "bullet_alive")


class Seaquest(RampingGame):
    """Seaquest: reward 1 for every enemy shot, and up to 10 for surfacing with six divers, by the oxygen left.

    The submarine of the player moves in the rows 0 (the surface) to 8 and fires in the direction of its last sideways
    move, at most every fifth step. Fish and submarines cross the rows 1 to 8; submarines shoot. Divers that are touched
    come on board, up to six. Oxygen lasts for 200 steps under water. Surfacing refills it, costs one diver, and pays
    for a crew of six, whose number then becomes -1, as in `minatar`. The game is over when the player meets an enemy or
    its bullet, without oxygen, or on surfacing without a diver. Difficulty ramps at every surfacing: enemies appear one
    step sooner, and every second time also move one step sooner.

    Planes: front and back of the submarine, its bullets, trails, bullets of enemies, fish, submarines, oxygen, divers
    on board, divers. Actions: all six. See `RampingGame` for the arguments.

    """

    channels = (
        "sub_front", "sub_back", "friendly_bullet", "trail", "enemy_bullet",
        "enemy_fish", "enemy_sub", "oxygen_gauge", "diver_gauge", "diver",
    )  # fmt: skip
    signs = "@a-,!xXo+d"
    effective_actions = (NOOP, LEFT, UP, RIGHT, DOWN, FIRE)
    draws = 5

    def make_tables(self) -> tuple[Tensor, ...]:
        """Return the order of the enemies, and the columns."""
        return torch.arange(ENEMIES), torch.arange(SIDE)

    def start(self, noise: Tensor) -> State:
        """Return the game at its start, without enemies and divers."""
        ones = torch.ones_like(noise[:, 0], dtype=torch.int64)
        slots = {ENEMY: ENEMIES, DIVER: DIVERS, BULLET: BULLETS}
        flags = ("rightward", "is_sub", "alive")
        return {
            "sub_x": ones * 5,
            "sub_y": torch.zeros_like(ones),
            "faces_right": torch.zeros_like(ones, dtype=torch.bool),
            "oxygen": ones * OXYGEN,
            "crew": torch.zeros_like(ones),
            "reload": torch.zeros_like(ones),
            "surfaced": torch.ones_like(ones, dtype=torch.bool),
            "spawn_interval": ones * SPAWN_INTERVAL,
            "spawn_wait": ones * SPAWN_INTERVAL,
            "diver_spawn_wait": ones * DIVER_INTERVAL,
            "move_interval": ones * MOVE_INTERVAL,
            "ramps": torch.zeros_like(ones),
            "enemy_bullets": torch.zeros(len(noise), 2 * CELLS, dtype=torch.bool, device=noise.device),
        } | {
            name: torch.zeros(
                len(noise), slots[names], dtype=torch.bool if name.endswith(flags) else torch.int64, device=noise.device
            )
            for names in slots
            for name in names
        }

    def play(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor]:
        """Let enemies and divers appear, then move player, bullets, divers and enemies, and surface."""
        state = state | spawned_enemy(state, noise[:, :3]) | spawned_diver(state, noise[:, 3:])
        state = state | steered(state, action)
        state, shot = self._shot(state)
        state = state | rescued(state)
        state, rammed, met = moved_enemies(state)
        state, hit = moved_enemy_bullets(state)
        for name in ("spawn_wait", "diver_spawn_wait", "reload"):
            state[name] = (state[name] - 1).clamp(min=0)
        suffocated = state["oxygen"] <= 0
        surfacing, paid, drowned = surfaced(state, self.difficulty_ramping)
        reward = shot + rammed + paid
        return state | surfacing, reward.float(), met | hit | suffocated | drowned

    def planes(self, state: State) -> list[Tensor]:
        """Return the ten boards."""
        _, line = self.tables.on(state["sub_x"].device)
        x, y, alive, is_sub = (state[name] for name in ("x", "y", "alive", "is_sub"))
        diver_x, diver_y, diver = (state[name] for name in ("diver_x", "diver_y", "diver_alive"))
        back = state["sub_x"] - ahead(state["faces_right"])
        trail = marked(x - ahead(state["rightward"]), y, alive)
        trail = trail | marked(diver_x - ahead(state["diver_rightward"]), diver_y, diver)
        air = line < (state["oxygen"].clamp(min=0) * SIDE // OXYGEN)[:, None]
        crew = (line >= BOTTOM - state["crew"][:, None]) & (line < BOTTOM)
        left, right = state["enemy_bullets"].view(-1, 2, CELLS).unbind(1)
        return [
            self.cell(state["sub_x"], state["sub_y"]),
            self.cell(back, state["sub_y"]),
            marked(state["bullet_x"], state["bullet_y"], state["bullet_alive"]),
            trail,
            left | right,
            marked(x, y, alive & ~is_sub),
            marked(x, y, alive & is_sub),
            bottom_row(air),
            bottom_row(crew),
            marked(diver_x, diver_y, diver),
        ]

    def _shot(self, state: State) -> tuple[State, Tensor]:
        """Move the player's bullets; each removes the oldest fish in its cell, else the oldest submarine."""
        order, _ = self.tables.on(state["x"].device)
        bullet_x = state["bullet_x"] + ahead(state["bullet_rightward"])
        flying = state["bullet_alive"] & (bullet_x >= 0) & (bullet_x < SIDE)
        same = (bullet_x[:, :, None] == state["x"][:, None]) & (state["bullet_y"][:, :, None] == state["y"][:, None])
        same = same & flying[:, :, None] & state["alive"][:, None]
        rank = torch.where(same, 1 + order + ENEMIES * (~state["is_sub"]).long()[:, None], 0)
        best = rank.amax(2, keepdim=True)
        hits = same & (rank == best)
        shot = hits.any(2)
        after = {"bullet_x": bullet_x, "bullet_alive": flying & ~shot, "alive": state["alive"] & ~hits.any(1)}
        return state | after, shot.sum(1)


def ahead(rightward: Tensor) -> Tensor:
    """Return the sideways step of objects: 1 to the right, -1 to the left."""
    return 2 * rightward.long() - 1


def bottom_row(line: Tensor) -> Tensor:
    """Return boards `[B, 100]` whose lowest rows are the lines `[B, 10]`."""
    return torch.cat((torch.zeros(len(line), CELLS - SIDE, dtype=torch.bool, device=line.device), line), 1)


def pushed(slots: Tensor, new: Tensor, where: Tensor) -> Tensor:
    """Return slots `[B, N]` with the new object `[B]` in front, in rows `where` one appears."""
    return torch.where(where[:, None], torch.cat((new[:, None].to(slots.dtype), slots[:, :-1]), 1), slots)


def spawned_enemy(state: State, noise: Tensor) -> State:
    """Return the enemies after one appeared, if it is time and no enemy crosses its row the other way.

    Args:
        noise: uniforms `[B, 3]` of direction, kind and row.
    """
    due = state["spawn_wait"] == 0
    rightward, is_sub, y = noise[:, 0] < 1 / 2, noise[:, 1] < 1 / 3, 1 + (noise[:, 2] * DEPTHS).long()
    opposed = state["alive"] & (state["y"] == y[:, None]) & (state["rightward"] != rightward[:, None])
    appears = due & ~opposed.any(1)
    x, wait = torch.where(rightward, 0, SIDE - 1), torch.full_like(y, SHOT_INTERVAL)
    new = dict(zip(ENEMY, (x, y, rightward, is_sub, appears, state["move_interval"], wait), strict=True))
    after = {name: pushed(state[name], value, appears) for name, value in new.items()}
    return after | {"spawn_wait": torch.where(due, state["spawn_interval"], state["spawn_wait"])}


def spawned_diver(state: State, noise: Tensor) -> State:
    """Return the divers after one appeared, if it is time; uniforms `[B, 2]` of direction and row."""
    due = state["diver_spawn_wait"] == 0
    rightward, y = noise[:, 0] < 1 / 2, 1 + (noise[:, 1] * DEPTHS).long()
    wait = torch.full_like(y, DIVER_MOVE_INTERVAL)
    new = dict(zip(DIVER, (torch.where(rightward, 0, SIDE - 1), y, rightward, due, wait), strict=True))
    after = {name: pushed(state[name], value, due) for name, value in new.items()}
    return after | {"diver_spawn_wait": torch.where(due, DIVER_INTERVAL, state["diver_spawn_wait"])}


def steered(state: State, action: Tensor) -> State:
    """Return the player after its action, and its bullets."""
    fires = (action == FIRE) & (state["reload"] == 0)
    x, y, right = state["sub_x"], state["sub_y"], state["faces_right"]
    after = {name: pushed(state[name], new, fires) for name, new in zip(BULLET, (x, y, right, fires), strict=True)}
    return after | {
        "sub_x": walked(x, action, LEFT, RIGHT),
        "sub_y": walked(y, action, UP, DOWN, 0, DEPTHS),
        "faces_right": (right & (action != LEFT)) | (action == RIGHT),
        "reload": torch.where(fires, RELOAD, state["reload"]),
    }


def rescued(state: State) -> State:
    """Return divers and crew after divers moved; one that the player touches before or after comes on board."""
    x, y, alive, wait = (list(state[f"diver_{name}"].unbind(1)) for name in ("x", "y", "alive", "wait"))
    step, crew = ahead(state["diver_rightward"]), state["crew"]
    for slot in range(DIVERS):
        beside = alive[slot] & (y[slot] == state["sub_y"])
        taken = beside & (x[slot] == state["sub_x"]) & (crew < CREW)
        moves = ~taken & (wait[slot] == 0)
        x[slot] = torch.where(moves, x[slot] + step[:, slot], x[slot])
        taken = taken | (beside & moves & (x[slot] == state["sub_x"]) & (crew < CREW))
        wait[slot] = torch.where(moves, DIVER_MOVE_INTERVAL, wait[slot] - 1)
        alive[slot] = alive[slot] & ~taken & (x[slot] >= 0) & (x[slot] < SIDE)
        crew = crew + taken.long()
    columns = {"x": x, "alive": alive, "wait": wait}
    return {f"diver_{name}": torch.stack(column, 1) for name, column in columns.items()} | {"crew": crew}


def moved_enemies(state: State) -> tuple[State, Tensor, Tensor]:
    """Move the enemies and let submarines shoot.

    Enemies of a row move the same way and never two into one cell at once, so that a bullet meets at most one of them.

    Returns: the state, how many enemies moved into a bullet, and whether one met the player.
    """
    alive, y, moves = state["alive"], state["y"], state["move_wait"] == 0
    at_player = (state["x"] == state["sub_x"][:, None]) & (y == state["sub_y"][:, None])
    x = torch.where(moves, state["x"] + ahead(state["rightward"]), state["x"])
    inside = (x >= 0) & (x < SIDE)
    reaches = moves & (x == state["sub_x"][:, None]) & (y == state["sub_y"][:, None])
    met = (alive & (at_player | reaches)).any(1)
    same = (state["bullet_x"][:, :, None] == x[:, None]) & (state["bullet_y"][:, :, None] == y[:, None])
    rams = same & state["bullet_alive"][:, :, None] & (alive & moves & inside & ~reaches)[:, None]
    shoots = alive & state["is_sub"] & (state["shot_wait"] == 0)
    new = [marked(x, y, shoots & (state["rightward"] == right)) for right in (False, True)]
    after = {
        "x": x,
        "alive": alive & inside & ~rams.any(1),
        "move_wait": torch.where(moves, state["move_interval"][:, None], state["move_wait"] - 1),
        "shot_wait": torch.where(state["shot_wait"] == 0, SHOT_INTERVAL, state["shot_wait"] - 1),
        "bullet_alive": state["bullet_alive"] & ~rams.any(2),
        "enemy_bullets": state["enemy_bullets"] | torch.cat(new, 1),
    }
    return state | after, rams.any(1).sum(1), met


def moved_enemy_bullets(state: State) -> tuple[State, Tensor]:
    """Move the bullets of enemies; return the state and whether one met the player before or after its move."""
    left, right = state["enemy_bullets"].view(-1, 2, SIDE, SIDE).unbind(1)
    before = (left | right).flatten(1)
    edge = torch.zeros_like(left[:, :, :1])
    left, right = torch.cat((left[:, :, 1:], edge), 2), torch.cat((edge, right[:, :, :-1]), 2)
    after = (left | right).flatten(1)
    met = content(before | after, state["sub_x"], state["sub_y"])
    return state | {"enemy_bullets": torch.stack((left, right), 1).flatten(1)}, met


def surfaced(state: State, ramping: bool) -> tuple[State, Tensor, Tensor]:
    """Return oxygen, crew and difficulty after the step, what surfacing pays, and whether it was without a diver."""
    oxygen, crew, ramps = (state[name] for name in ("oxygen", "crew", "ramps"))
    spawn, move = state["spawn_interval"], state["move_interval"]
    deep = state["sub_y"] > 0
    arrives = ~deep & ~state["surfaced"]
    comes_up = arrives & (crew != 0)
    full = comes_up & (crew == CREW)
    least_spawn, least_move = RAMP_LIMITS
    ramped = comes_up & ((spawn > least_spawn) | (move > least_move)) & ramping
    after = {
        "oxygen": torch.where(comes_up, OXYGEN, oxygen - deep.long()),
        "crew": torch.where(full, -1, crew - comes_up.long()),
        "surfaced": (state["surfaced"] & ~deep) | comes_up,
        "spawn_interval": spawn - (ramped & (spawn > least_spawn)).long(),
        "move_interval": move - (ramped & (move > least_move) & (ramps % 2 == 1)).long(),
        "ramps": ramps + ramped.long(),
    }
    return after, torch.where(full, oxygen * SIDE // OXYGEN, 0), arrives & (crew == 0)
