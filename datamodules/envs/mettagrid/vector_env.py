"""MettaGridVectorEnv: the package `mettagrid` as a Gymnasium vector environment of several agents."""

import multiprocessing
from collections.abc import Sequence
from importlib.util import find_spec
from multiprocessing.connection import Connection
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from datamodules.core.arguments import check_arguments
from datamodules.core.errors import ConfigurationError

Array = np.ndarray
Infos = dict[str, Any]


class MettaGridVectorEnv(gym.vector.VectorEnv):
    """Simulations of mines, generators and altars, one row for each agent; every heart is a reward of 1.

    Row `e * num_agents + a` is agent a of environment e. All agents of an environment end together: the episode is
    truncated after `time_limit` steps; nothing is reset automatically, and a reset chooses a new random map. The
    simulations write into arrays that are allocated once; with several workers the processes share their memory.

    Actions: 0 no-op, 1 north, 2 south, 3 west, 4 east; an agent that moves into an object uses it. Observations:
    `tokens`, uint8 `[num_tokens, 3]`, each a cell of the view (high nibble row, low nibble column; 254 for facts about
    the agent, 255 for none), a feature and its value; or `dense`, uint8 `[8, view, view]`: planes of agents, altars,
    generators, mines and walls, 255 for one, and of the ore, the batteries and the hearts in a cell.

    Args:
        num_envs: simulations.
        num_workers: processes that step them, at most one for each; 1 steps them in this process.
        observation: tokens or dense.
        replay_folder: folder for MettaGrid's replay of every episode of the first simulation; null writes none.
        game: arguments of `datamodules.envs.mettagrid.game.game_config`.

    Raises: ConfigurationError without the package, and for invalid arguments.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012  (Gymnasium's own form)

    def __init__(
        self,
        num_envs: int = 1,
        num_workers: int = 1,
        observation: Literal["tokens", "dense"] = "tokens",
        replay_folder: str | None = None,
        **game: Any,
    ):
        require_package()
        from datamodules.envs.mettagrid.dense import DensePlanes
        from datamodules.envs.mettagrid.game import game_config
        from datamodules.envs.mettagrid.simulators import SharedStepArrays

        own = {"num_workers": num_workers, "observation": observation, "replay_folder": replay_folder}
        check_arguments(MettaGridVectorEnv, own, "MettaGrid-v0", "env_kwargs.")
        check_arguments(game_config, game, "MettaGrid-v0", "env_kwargs.")
        check_numbers(num_envs, num_workers)
        num_workers = min(num_workers, num_envs)
        config = game_config(**game)
        self.num_envs, self.num_agents = num_envs, config.game.num_agents
        rows = num_envs * self.num_agents
        self.shared = SharedStepArrays(rows, config.game.obs.num_tokens)
        self.arrays = self.shared.arrays
        self.dense = DensePlanes(config) if observation == "dense" else None
        shape = self.arrays.obs.shape[1:] if self.dense is None else self.dense.shape
        self.single_observation_space = Box(0, 255, shape, np.uint8)
        self.single_action_space = Discrete(len(config.game.actions.actions()))
        self.observation_space = batch_space(self.single_observation_space, rows)
        self.action_space = batch_space(self.single_action_space, rows)
        sizes = [len(part) for part in np.array_split(np.arange(num_envs), num_workers)]
        ends = np.cumsum(sizes)
        self.parts = [slice(end - size, end) for end, size in zip(ends.tolist(), sizes, strict=True)]
        folders = [replay_folder, *[None] * (num_workers - 1)]
        kind: Any = LocalSimulators if num_workers == 1 else RemoteSimulators
        self.workers: list[LocalSimulators | RemoteSimulators] = [
            kind(self.shared, game, part, folder) for part, folder in zip(self.parts, folders, strict=True)
        ]

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Array, Infos]:
        """Start new episodes: all, or those of `options["reset_mask"]`, bool `[num_envs]`.

        Args:
            seed: seed of all environments together; None goes on with their generators.
        """
        chosen = (options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_))
        seeds = None
        if seed is not None:
            seeds = np.random.SeedSequence(seed).generate_state(self.num_envs).tolist()
        for worker, part in zip(self.workers, self.parts, strict=True):
            worker.send(("reset", None if seeds is None else seeds[part], chosen[part]))
        self._wait()
        return self._shown(self.arrays.obs), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, Infos]:
        """Step every simulation; the arrays that are returned are overwritten by the next step."""
        self.arrays.action[...] = actions
        for worker in self.workers:
            worker.send(("step",))
        self._wait()
        own = self.arrays
        return self._shown(own.obs), own.reward, own.terminated, own.truncated, {}

    def close_extras(self, **kwargs: Any) -> None:
        """End the worker processes."""
        for worker in self.workers:
            worker.close()

    def _wait(self) -> None:
        for worker in self.workers:
            worker.wait()

    def _shown(self, tokens: Array) -> Array:
        return tokens if self.dense is None else self.dense(tokens)


class LocalSimulators:
    """Simulations that are stepped in this process.

    Args:
        shared: arrays of all environments.   game: arguments of `game_config`.   part: the environments to step.
        replay_folder: as for `MettaGridVectorEnv`.
    """

    def __init__(self, shared: Any, game: dict[str, Any], part: slice, replay_folder: str | None):
        from datamodules.envs.mettagrid.game import game_config
        from datamodules.envs.mettagrid.simulators import Simulators

        config = game_config(**game)
        agents = config.game.num_agents
        rows = shared.arrays.rows(slice(part.start * agents, part.stop * agents))
        self.simulators = Simulators(config, part.stop - part.start, rows, replay_folder)

    def send(self, command: Sequence[Any]) -> None:
        """Execute a command: the name of a method of `Simulators`, and its arguments."""
        getattr(self.simulators, command[0])(*command[1:])

    def wait(self) -> None:
        """Do nothing: `send` has waited."""

    def close(self) -> None:
        """Do nothing: there is no process."""


class RemoteSimulators:
    """`LocalSimulators` in a process; arguments as there."""

    def __init__(self, shared: Any, game: dict[str, Any], part: slice, replay_folder: str | None):
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process: Any = context.Process(
            target=serve, args=(other, shared, game, part, replay_folder), daemon=True, name=f"mettagrid {part.start}"
        )
        self.process.start()
        other.close()

    def send(self, command: Sequence[Any]) -> None:
        """Send a command to the process."""
        self.connection.send(command)

    def wait(self) -> None:
        """Wait until the process has executed the last command.

        Raises: RuntimeError if the process ended or raised.
        """
        try:
            failure = self.connection.recv()
        except EOFError:
            self.process.join()
            failure = f"it ended with exit code {self.process.exitcode}"
        if failure is not None:
            raise RuntimeError(f"The worker process of {self.process.name} failed: {failure}.")

    def close(self) -> None:
        """End the process."""
        self.connection.close()
        self.process.join()


def serve(connection: Connection, shared: Any, game: dict[str, Any], part: slice, replay_folder: str | None) -> None:
    """Execute the commands of a parent process until it closes the connection."""
    simulators = LocalSimulators(shared, game, part, replay_folder)
    while True:
        try:
            command = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            simulators.send(command)
        except Exception as error:
            connection.send(f"{type(error).__name__}: {error}")
            raise
        connection.send(None)


def require_package() -> None:
    """Raise ConfigurationError if the package is not installed."""
    if find_spec("mettagrid") is None:
        raise ConfigurationError(
            "MettaGrid needs the package mettagrid, whose pins differ: make mettagrid in the project's folder builds"
            " the environment .venv-mettagrid, with Python 3.11 or 3.12."
        )


def check_numbers(num_envs: int, num_workers: int) -> None:
    """Raise ConfigurationError for the first number that is below 1."""
    for name, value in (("num_envs", num_envs), ("num_workers", num_workers)):
        if value < 1:
            raise ConfigurationError(f"MettaGrid has {name} {value}; choose at least 1.")
