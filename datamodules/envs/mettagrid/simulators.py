"""Simulators: step several simulations of `mettagrid`, which write into slices of arrays that are allocated once."""

from multiprocessing import sharedctypes
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mettagrid.config.mettagrid_c_config import convert_to_cpp_game_config, rename_map_agents
from mettagrid.config.mettagrid_config import MettaGridConfig
from mettagrid.mettagrid_c import MettaGrid
from mettagrid.simulator.replay_log_writer import ReplayLogWriter
from mettagrid.simulator.simulator import Buffers, Simulation

Array = np.ndarray


class StepArrays(NamedTuple):
    """Arrays of a step with one row per agent.

    obs: tokens, uint8 `[rows, T, 3]`.   reward: float32.   terminated, truncated: bool.   action, vibe: int32.
    """

    obs: Array
    reward: Array
    terminated: Array
    truncated: Array
    action: Array
    vibe: Array

    def rows(self, part: slice) -> "StepArrays":
        """Return views of some rows."""
        return StepArrays(*(array[part] for array in self))


class SharedStepArrays:
    """Memory of `StepArrays` that processes share; `arrays` are views of it.

    Args:
        rows: number of agents in all.   num_tokens: tokens of an observation.
    """

    def __init__(self, rows: int, num_tokens: int):
        self.shapes: dict[str, tuple[int, ...]] = {"obs": (rows, num_tokens, 3)}
        dtypes: dict[str, Any] = {"obs": np.uint8, "action": np.int32, "vibe": np.int32, "reward": np.float32}
        self.dtypes = {name: np.dtype(dtypes.get(name, np.bool_)) for name in StepArrays._fields}
        self.shapes |= {name: (rows,) for name in StepArrays._fields if name not in self.shapes}
        self.memory = {
            name: sharedctypes.RawArray("b", int(np.prod(shape)) * self.dtypes[name].itemsize)
            for name, shape in self.shapes.items()
        }

    @property
    def arrays(self) -> StepArrays:
        """Return the arrays."""
        return StepArrays(
            *(
                np.frombuffer(self.memory[name], self.dtypes[name]).reshape(self.shapes[name])
                for name in StepArrays._fields
            )
        )


class Simulators:
    """Simulations of one game on random maps; a reset replaces a simulation by a new one.

    Args:
        config: the game.   number: simulations.   arrays: rows of all their agents.
        replay_folder: folder for a replay of every episode of the first simulation; None writes none.
    """

    def __init__(self, config: MettaGridConfig, number: int, arrays: StepArrays, replay_folder: str | None = None):
        self.config, self.number, self.arrays, self.replay_folder = config, number, arrays, replay_folder
        self.num_agents = config.game.num_agents
        self.game, self.renames = convert_to_cpp_game_config(config.game)
        self.generators = [np.random.default_rng(index) for index in range(number)]
        self.simulations: list[Any] = [None] * number

    def reset(self, seeds: list[int] | None, chosen: Array) -> None:
        """Start new episodes of the chosen simulations, bool `[number]`, after reseeding all if seeds are given."""
        if seeds is not None:
            self.generators = [np.random.default_rng(seed) for seed in seeds]
        for index in chosen.nonzero()[0]:
            self._start(int(index))

    def step(self) -> None:
        """Step all simulations with the actions in the arrays."""
        for simulation in self.simulations:
            simulation.step()

    def _start(self, index: int) -> None:
        """Replace a simulation by one on a new map."""
        seed = int(self.generators[index].integers(2**31))
        map_seed = np.random.default_rng([self.config.game.map_builder.seed, seed]).integers(2**31)
        builder = self.config.game.map_builder.model_copy(update={"seed": int(map_seed)})
        own = self.arrays.rows(self._rows(index))
        own.reward[...], own.terminated[...], own.truncated[...] = 0, False, False
        if index == 0 and self.replay_folder is not None:
            Path(self.replay_folder).mkdir(parents=True, exist_ok=True)
            config = self.config.model_copy(
                update={"game": self.config.game.model_copy(update={"map_builder": builder})}
            )
            buffers = Buffers(own.obs, own.terminated, own.truncated, own.reward, own.terminated, own.action, own.vibe)
            writer = ReplayLogWriter(self.replay_folder)
            self.simulations[index] = Simulation(config, seed, event_handlers=[writer], buffers=buffers)
            return
        cells = builder.create().build_for_num_agents(self.num_agents).grid.tolist()
        simulation = MettaGrid(self.game, rename_map_agents(cells, self.renames), seed)
        simulation.set_buffers(own.obs, own.terminated, own.truncated, own.reward, own.action, own.vibe)
        self.simulations[index] = simulation

    def _rows(self, index: int) -> slice:
        return slice(index * self.num_agents, (index + 1) * self.num_agents)
