"""read_replay: read and check a replay that MettaGrid has written."""

import json
import zlib
from pathlib import Path
from typing import Any

from mettagrid.config.mettagrid_config import MettaGridConfig
from mettagrid.policy.policy_env_interface import PolicyEnvInterface

from datamodules.core.errors import ConfigurationError

FORMAT_VERSION = 4
"""Version of the format that release 0.26 of the package writes."""

CHANGING = ("location", "action_id", "current_reward")
"""Entries of an agent that hold its changes, as pairs of step and value, or one value that never changes."""


def read_replay(path: str | Path) -> dict[str, Any]:
    """Return a replay (`*.json.z`) as plain values, checked against the schemas of the package.

    The configuration and the description of the interface are read by the classes of the package that wrote them; the
    changes of every agent must be in the order of their steps, within the episode and the map, and name known actions.

    Raises: ConfigurationError for a file that is no such replay, and for the first violation.
    """
    try:
        replay: dict[str, Any] = json.loads(zlib.decompress(Path(path).read_bytes()))
        if replay["version"] != FORMAT_VERSION:
            raise ConfigurationError(f"{path} is a replay of version {replay['version']}, not {FORMAT_VERSION}.")
        config = MettaGridConfig.model_validate(replay["mg_config"])
        PolicyEnvInterface.model_validate(replay["policy_env_interface"])
        agents = [entry for entry in replay["objects"] if "agent_id" in entry]
        if len(agents) != config.game.num_agents or replay["num_agents"] != config.game.num_agents:
            raise ConfigurationError(f"{path} has {len(agents)} agents, but its game has {config.game.num_agents}.")
        for agent in agents:
            _check_agent(agent, replay, path)
    except (zlib.error, KeyError, TypeError, ValueError) as error:
        if isinstance(error, ConfigurationError):
            raise
        raise ConfigurationError(f"{path} is not a replay of MettaGrid: {error}.") from error
    return replay


def _check_agent(agent: dict[str, Any], replay: dict[str, Any], path: str | Path) -> None:
    width, height = replay["map_size"]
    for name in CHANGING:
        steps = [step for step, _ in changes(agent[name])]
        if steps != sorted(set(steps)) or not 0 <= steps[0] <= steps[-1] < replay["max_steps"]:
            raise ConfigurationError(f"{path} has changes of {name} that are not in the order of the steps.")
    inside = all(0 <= x < width and 0 <= y < height for _, (x, y, *_) in changes(agent["location"]))
    known = all(0 <= action < len(replay["action_names"]) for _, action in changes(agent["action_id"]))
    if not (inside and known):
        raise ConfigurationError(f"{path} has an agent outside of its map, or an action without a name.")


def changes(entry: Any) -> list[tuple[int, Any]]:
    """Return the pairs of step and value of an entry, which holds only the value if that never changes."""
    pairs = isinstance(entry, list) and entry and all(isinstance(each, list) and len(each) == 2 for each in entry)
    if pairs and all(isinstance(step, int) for step, _ in entry) and entry[0][0] == 0:
        return [(step, value) for step, value in entry]
    return [(0, entry)]
