"""GridWorld: agents mine ore, turn it into batteries, and bring these to altars for hearts.

Maps are drawn once and kept as constants (see `maps`), so that a state holds only what changes: where the agents are,
what they carry, and when objects can be used again. Cells are numbered row by row. A step is a fixed number of
look-ups and comparisons, whatever the agents do.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec, State
from datamodules.env_interface.device_constants import DeviceConstants
from datamodules.envs.gridworld.maps import (
    ALTAR,
    FIRST_OBJECT,
    FREE,
    GENERATOR,
    MAX_OBJECTS,
    MINE,
    WALL,
    make_maps,
    object_kinds,
)
from datamodules.envs.gridworld.rendering import ansi, rgb_array

ACTIONS = ("no-op", "north", "south", "west", "east")
"""The actions, in the order of their codes."""

PLANES = ("wall", "mine", "generator", "altar", "busy", "stocked", "agent", "ore", "battery")
"""The planes of an observation: six of the map, the other agents, and what the agent carries."""

MAP_PLANES = 6
BUSY, STOCKED, OTHER = (1 << PLANES.index(name) for name in ("busy", "stocked", "agent"))
"""Bits of a cell's status; those of walls and objects are `1 << (kind - 1)`."""


class Tables(NamedTuple):
    """Constants of the rules.

    content: of all cells of all maps.   starts: of all maps.   moves: change of the cell by action.
    window: cells of the observation, relative to the agent's.   kinds, kind_bits: by content.   bits: of the planes.
    choices: number of maps and of starting cells.   objects, agents: their numbers.
    """

    content: Tensor
    starts: Tensor
    moves: Tensor
    window: Tensor
    kinds: Tensor
    kind_bits: Tensor
    bits: Tensor
    choices: Tensor
    objects: Tensor
    agents: Tensor


class Claims(NamedTuple):
    """What the agents do in a step, bool `[E, A]` each: enter a cell, or use an object; and the object `[E, A]`."""

    enters: Tensor
    mines: Tensor
    converts: Tensor
    takes: Tensor
    pays: Tensor
    object: Tensor


class GridWorld:
    """World of mines, generators and altars as a `TorchFuncEnv` of several agents.

    An agent that moves into an object uses it. A mine gives 1 ore. A generator turns 1 ore into 1 battery. An altar
    gives a heart, reward 1, for `altar_cost` batteries, or for nothing while it is stocked. An object that was used is
    busy for `cooldown` steps. Agents, objects and walls cannot be entered. All agents act at once: a cell that an agent
    holds at the start of a step is closed in it, and of agents that claim the same cell or object the first one acts;
    agent `t mod num_agents` is the first in step t, and the others follow in the order of their numbers.

    Actions: 0 no-op, 1 north, 2 south, 3 west, 4 east. Observation: the `view` by `view` cells around the agent, one
    plane per name in `PLANES`, `[9, view, view]` in bytes, 255 for one; the planes `ore` and `battery` are constant and
    hold what the agent carries, as a share of `capacity`. An episode is truncated after `time_limit` steps.

    A curriculum: with `start_altars` or `start_altar_hearts`, episodes of training have that many altars or hearts at
    the start of a run, and linearly fewer down to `altars` and `altar_hearts` at its end (`set_progress`).

    Args:
        num_agents: agents of an environment.
        size: cells along one side of the map, without its frame of walls.
        view: cells along one side of the observation, odd.
        mines, generators, altars: number of objects of each kind.
        wall_density: probability of a wall in a cell, in [0, 0.5].
        altar_cost: batteries for a heart.
        capacity: most ore, and most batteries, that an agent carries.
        cooldown: steps for which an object is busy after it was used.
        altar_hearts: hearts in stock of every altar at the start of an episode.
        start_altars, start_altar_hearts: altars and hearts in stock at the start of a run; null: no curriculum.
        ore_reward, battery_reward: rewards for mining an ore and for making a battery.
        team_reward: share of an agent's reward that is the mean over the agents, in [0, 1].
        time_limit: steps of an episode.
        num_maps: number of maps, of which each episode draws one.
        map_seed: seed of the maps.

    Raises: ConfigurationError if an argument is out of range.
    """

    noise_size = 2
    episode_stat_keys = ("hearts", "ore_mined", "batteries_made")
    obs_bounds = (0, 255)

    def __init__(
        self,
        num_agents: int = 4,
        size: int = 16,
        view: int = 11,
        mines: int = 6,
        generators: int = 4,
        altars: int = 4,
        wall_density: float = 0.1,
        altar_cost: int = 3,
        capacity: int = 10,
        cooldown: int = 5,
        altar_hearts: int = 0,
        start_altars: int | None = None,
        start_altar_hearts: int | None = None,
        ore_reward: float = 0.0,
        battery_reward: float = 0.0,
        team_reward: float = 0.0,
        time_limit: int = 400,
        num_maps: int = 1024,
        map_seed: int = 0,
    ) -> None:
        check_gridworld_arguments(locals())
        self.start_altars = altars if start_altars is None else start_altars
        self.start_altar_hearts = altar_hearts if start_altar_hearts is None else start_altar_hearts
        kinds = object_kinds(mines, generators, self.start_altars)
        self.num_agents, self.view, self.altars, self.altar_cost = num_agents, view, altars, altar_cost
        self.capacity, self.cooldown, self.altar_hearts = capacity, cooldown, altar_hearts
        self.ore_reward, self.battery_reward, self.team_reward = ore_reward, battery_reward, team_reward
        self.min_truncation_step, self.num_objects = time_limit, len(kinds)
        self.num_lasting = FIRST_OBJECT + mines + generators
        self.maps = make_maps(num_maps, size, view // 2, len(kinds), wall_density, num_agents, map_seed)
        self.spaces = SpaceSpec(
            obs_shape=(len(PLANES), view, view),
            obs_dtype="uint8",
            action_type="discrete",
            action_sizes=[len(ACTIONS)],
            action_low=[],
            action_high=[],
            action_start=[0],
            num_agents=num_agents,
        )
        self.tables = DeviceConstants(*self._make_tables(kinds))
        self.progress = DeviceConstants(torch.ones(()))

    def _make_tables(self, kinds: list[int]) -> Tables:
        """Return the constants, in the order of `Tables`."""
        side, reach = self.maps.side, torch.arange(self.view) - self.view // 2
        kind = torch.tensor([FREE, WALL, *kinds])
        return Tables(
            self.maps.content.flatten(),
            self.maps.starts.flatten(),
            torch.tensor([0, -side, side, -1, 1]),
            (reach[:, None] * side + reach).flatten(),
            kind,
            torch.where(kind == FREE, 0, 1 << (kind - 1)).to(torch.uint8),
            (1 << torch.arange(MAP_PLANES + 1)).to(torch.uint8),
            torch.tensor(self.maps.starts.shape),
            torch.arange(self.num_objects),
            torch.arange(self.num_agents),
        )

    @property
    def follows_progress(self) -> bool:
        """Return whether there is a curriculum, which `set_progress` advances."""
        return self.start_altars > self.altars or self.start_altar_hearts > self.altar_hearts

    def set_progress(self, progress: float) -> None:
        """Set the progress of the run, from 0 to 1, for the episodes that start from then on; 1 before it is called."""
        self.progress.fill_(progress)

    def initial(self, noise: Tensor) -> State:
        """Return initial states from uniforms `[E, 2]`: the map, and the starting cells."""
        tables, num_starts = self._on(noise.device), self.maps.starts.shape[1]
        number, first = (noise * tables.choices).long().unbind(1)
        places = (first[:, None] + tables.agents) % num_starts + number[:, None] * num_starts
        nothing = torch.zeros_like(places)
        altars, hearts = self._difficulty(noise.device)
        stock = torch.zeros(len(noise), self.num_objects, dtype=torch.int64, device=noise.device)
        stock[:, self.num_lasting - FIRST_OBJECT :] = hearts
        return {
            "map": number,
            "position": tables.starts.index_select(0, places.flatten()).view_as(places),
            "ore": nothing,
            "battery": nothing.clone(),
            "hearts": nothing.clone(),
            "ore_mined": nothing.clone(),
            "batteries_made": nothing.clone(),
            "ready_at": torch.zeros_like(stock),
            "stock": stock,
            "end": (self.num_lasting + altars).expand_as(number).clone(),
            "steps": torch.zeros_like(number),
        }

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Step with actions `[E, A]`; the noise is not used. Reward `[E, A]`, flags `[E]`; all `[E]` with one agent."""
        tables = self._on(action.device)
        action, steps = action.view_as(state["position"]), state["steps"]
        target = state["position"] + tables.moves.index_select(0, action.flatten()).view_as(action)
        claims = self._claims(state, target, action != 0)
        wanted = claims.enters | claims.mines | claims.converts | claims.takes
        turn = (tables.agents - steps[:, None]) % self.num_agents
        ahead = (turn[:, None] < turn[:, :, None]) & (target[:, None] == target[:, :, None]) & wanted[:, None]
        acts = wanted & ~ahead.any(2)
        enters, mines, converts, takes, pays = (acts & each for each in claims[:5])
        used = (acts & ~enters)[:, :, None] & (claims.object[:, :, None] == tables.objects)
        free_hearts = used & (takes & ~pays)[:, :, None]
        after = {
            "map": state["map"].clone(),
            "position": torch.where(enters, target, state["position"]),
            "ore": state["ore"] + mines.long() - converts.long(),
            "battery": state["battery"] + converts.long() - self.altar_cost * pays.long(),
            "hearts": state["hearts"] + takes.long(),
            "ore_mined": state["ore_mined"] + mines.long(),
            "batteries_made": state["batteries_made"] + converts.long(),
            "ready_at": torch.where(used.any(1), steps[:, None] + 1 + self.cooldown, state["ready_at"]),
            "stock": state["stock"] - free_hearts.any(1).long(),
            "end": state["end"].clone(),
            "steps": steps + 1,
        }
        reward = takes + self.ore_reward * mines + self.battery_reward * converts
        truncated = after["steps"] >= self.min_truncation_step
        return after, self._shared(reward.float()), torch.zeros_like(truncated), truncated

    def observation(self, state: State) -> Tensor:
        """Return the planes, uint8 `[E, A, 9, view, view]`; `[E, 9, view, view]` with one agent."""
        tables = self._on(state["position"].device)
        cells = state["position"][:, :, None] + tables.window
        status = self._status(state).gather(1, self._content(state, cells).flatten(1)).view_as(cells)
        status = torch.where(self._others(state), status | OTHER, status)
        planes = ((status[:, :, None] & tables.bits[:, None]) != 0).to(torch.uint8) * 255
        carried = (torch.stack((state["ore"], state["battery"]), 2) * 255 // self.capacity).to(torch.uint8)
        planes = torch.cat((planes, carried[..., None].expand(-1, -1, -1, len(tables.window))), 2)
        return planes.view(-1, *(self.num_agents,) * (self.num_agents > 1), len(PLANES), self.view, self.view)

    def info(self, state: State) -> dict[str, Tensor]:
        """Return the hearts, the ore mined and the batteries made of every agent, `[E, A]` each; `[E]` with one."""
        return {name: self._per_row(state[name]) for name in self.episode_stat_keys}

    def render(self, state: State, row: int, mode: str) -> Tensor | str:
        """Render one environment: `rgb_array`, uint8 `[16 (size + 2), 16 (size + 2), 3]`, or `ansi`, lines of text."""
        one = {name: leaf[row : row + 1].cpu() for name, leaf in state.items()}
        kind = self._on(torch.device("cpu")).kinds
        cells = torch.arange(self.maps.side**2)[None]
        kinds = kind[self._content(one, cells)].view(self.maps.side, -1)
        return (ansi if mode == "ansi" else rgb_array)(kinds, one["position"][0], self.maps.margin - 1)

    def _content(self, state: State, cells: Tensor) -> Tensor:
        """Return the content `[E, ...]` of cells `[E, ...]`, in which absent altars are free."""
        content = self._on(cells.device).content
        shape = (-1, *[1] * (cells.dim() - 1))
        index = cells + (state["map"] * self.maps.side**2).view(shape)
        found = content.index_select(0, index.flatten()).view_as(cells).long()
        return torch.where(found < state["end"].view(shape), found, FREE)

    def _claims(self, state: State, target: Tensor, moving: Tensor) -> Claims:
        """Return what the agents could do in their target cells `[E, A]`, if no other agent did the same."""
        content = self._content(state, target)
        kind = self._on(target.device).kinds.index_select(0, content.flatten()).view_as(content)
        used = (content - FIRST_OBJECT).clamp(min=0)
        ready = moving & (state["ready_at"].gather(1, used) <= state["steps"][:, None])
        stocked = state["stock"].gather(1, used) > 0
        ore, battery = state["ore"], state["battery"]
        occupied = (target[:, :, None] == state["position"][:, None]).any(2)
        at_altar = ready & (kind == ALTAR)
        return Claims(
            enters=moving & (kind == FREE) & ~occupied,
            mines=ready & (kind == MINE) & (ore < self.capacity),
            converts=ready & (kind == GENERATOR) & (ore > 0) & (battery < self.capacity),
            takes=at_altar & (stocked | (battery >= self.altar_cost)),
            pays=at_altar & ~stocked & (battery >= self.altar_cost),
            object=used,
        )

    def _status(self, state: State) -> Tensor:
        """Return the bits of every content of a cell `[E, 2 + num_objects]`: its kind, busy and stocked."""
        bits = self._on(state["steps"].device).kind_bits
        busy, stocked = state["ready_at"] > state["steps"][:, None], state["stock"] > 0
        objects = bits[FIRST_OBJECT:] | busy.to(torch.uint8) * BUSY | stocked.to(torch.uint8) * STOCKED
        return torch.cat((bits[:FIRST_OBJECT].expand(len(objects), -1), objects), 1)

    def _others(self, state: State) -> Tensor:
        """Return the cells of the window in which there is another agent, bool `[E, A, view * view]`."""
        position, radius, cells = state["position"], self.view // 2, self.view**2
        row, column = position // self.maps.side, position % self.maps.side
        down, right = (place[:, None] - place[:, :, None] + radius for place in (row, column))
        seen = (down >= 0) & (down < self.view) & (right >= 0) & (right < self.view)
        seen = seen & (position[:, None] != position[:, :, None])
        place = torch.where(seen, down * self.view + right, cells)
        marks = torch.zeros(*position.shape, cells + 1, dtype=torch.bool, device=position.device)
        return marks.scatter(2, place, True)[..., :cells]

    def _on(self, device: torch.device) -> Tables:
        return Tables(*self.tables.on(device))

    def _difficulty(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the altars and the hearts in stock of each at the progress of the run, 0-d."""
        (progress,) = self.progress.on(device)
        altars = torch.round(self.start_altars + (self.altars - self.start_altars) * progress)
        hearts = torch.round(self.start_altar_hearts + (self.altar_hearts - self.start_altar_hearts) * progress)
        return altars.long(), hearts.long()

    def _shared(self, reward: Tensor) -> Tensor:
        """Return rewards `[E, A]` of which a share is the mean over the agents."""
        if self.team_reward:
            reward = torch.lerp(reward, reward.mean(1, keepdim=True).expand_as(reward), self.team_reward)
        return self._per_row(reward)

    def _per_row(self, value: Tensor) -> Tensor:
        return value.squeeze(1) if self.num_agents == 1 else value


def check_gridworld_arguments(given: Mapping[str, Any]) -> None:
    """Raise ConfigurationError for the first argument of `GridWorld` that is out of range."""
    least = dict.fromkeys(("num_agents", "size", "mines", "generators", "altars", "altar_cost", "time_limit"), 1)
    least |= {"num_maps": 1, "capacity": given["altar_cost"], "cooldown": 0, "altar_hearts": 0, "map_seed": 0}
    least |= {f"start_{name}": given[name] for name in ("altars", "altar_hearts") if given[f"start_{name}"] is not None}
    for name, value in least.items():
        if given[name] < value:
            raise ConfigurationError(f"GridWorld has {name} {given[name]}; choose at least {value}.")
    for name, most in {"wall_density": 0.5, "team_reward": 1.0}.items():
        if not 0 <= given[name] <= most:
            raise ConfigurationError(f"GridWorld has {name} {given[name]:g}; choose a number from 0 to {most:g}.")
    if given["view"] < 3 or given["view"] % 2 == 0:
        raise ConfigurationError(f"GridWorld has view {given['view']}; choose an odd number of at least 3 cells.")
    objects = given["mines"] + given["generators"] + (given["start_altars"] or given["altars"])
    if objects > MAX_OBJECTS:
        raise ConfigurationError(f"GridWorld has {objects} objects; choose at most {MAX_OBJECTS} in all.")
