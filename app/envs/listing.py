"""List environments with their spaces and backends, or the reason why they cannot be trained on."""

import contextlib
import fnmatch
import importlib
import io
import textwrap
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any

import gymnasium as gym

from app.envs.speed import measure_speed
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec
from datamodules.vector.make_env import env_backends, probe_spaces

ADAPTERS = {"GymV21Environment", "GymV26Environment"}
"""Names of ids that are adapters rather than environments."""

ATARI = "ALE"
SHOWN_REASON = 100
"""Most characters of a reason, which is cut between two words."""

SPEED_ENVS, SPEED_SECONDS = 8, 0.5


def list_environments(pattern: str | None, speed: bool) -> Iterator[str]:
    """Yield a line for each environment that matches, the newest version of each.

    Args:
        pattern: part of an id, or a pattern with `*`, `?` or `[...]`; `module:` before it imports that module first.
            None lists all but Atari's games.
        speed: whether to measure env steps per second.

    Raises: ConfigurationError for a module that cannot be imported, and if nothing matches.
    """
    module, _, wanted = (pattern or "").rpartition(":")
    found = matching(module, wanted)
    if not found:
        raise ConfigurationError(f"No environment matches {pattern}: `python -m app envs` lists all.")
    prefix, width = f"{module}:" if module else "", max(map(len, found)) + len(module) + 3
    for name in found:
        yield f"{prefix + name:<{width}}{described(prefix + name, speed)}"
    if not wanted and find_spec("ale_py"):
        yield "Atari's games: python -m app envs 'ALE/*'"


def matching(module: str, wanted: str) -> list[str]:
    """Return the ids that match, the newest version of each; those of a module only, if one is named."""
    before = set() if not module else set(gym.registry)
    if module:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise ConfigurationError(f"The module {module} cannot be imported: {error}.") from error
    elif find_spec("ale_py") and wanted.upper().startswith(ATARI):
        importlib.import_module("ale_py")
    pattern = wanted if set(wanted) & set("*?[") else f"*{wanted}*"
    names = [name for name in newest(gym.registry) if fnmatch.fnmatch(name.lower(), pattern.lower())]
    own = [name for name in names if name not in before]
    return [name for name in own or names if wanted or not name.startswith(f"{ATARI}/")]


def newest(registry: Iterable[str]) -> list[str]:
    """Return the ids without older versions and adapters, sorted."""
    versions: dict[tuple[str | None, str], tuple[int, str]] = {}
    for name in registry:
        space, stem, version = gym.envs.registration.parse_env_id(name)
        if stem not in ADAPTERS:
            versions[space, stem] = max(
                versions.get((space, stem), (-2, "")), (-1 if version is None else version, name)
            )
    return sorted((name for _, name in versions.values()), key=str.lower)


def described(env: str, speed: bool) -> str:
    """Return the spaces, backends and speed of an environment, or why it cannot be trained on."""
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            spaces, backends = probe_spaces(env), env_backends(env, SPEED_ENVS)
            text = f"{describe_spaces(spaces)}  {', '.join(backends)}"
            if not speed:
                return text
            return f"{text}  {measure_speed(env, {}, backends[0], SPEED_ENVS, SPEED_SECONDS):,.0f} steps/s"
    except Exception as error:
        said = " ".join(str(error).split()).removeprefix(f"{env} ")
        return f"unavailable: {textwrap.shorten(said, SHOWN_REASON, placeholder=' ...', break_on_hyphens=False)}"


def describe_spaces(spaces: SpaceSpec) -> str:
    """Return observation, action and agents in a few words."""
    agents = spaces["num_agents"]
    return f"{_observation(spaces)} -> {_action(spaces)}{f', {agents} agents' if agents > 1 else ''}"


def _observation(spaces: SpaceSpec) -> str:
    parts: Any = spaces.get("obs_parts")
    if parts:
        return "{" + ", ".join(f"{name}: {_array(part['dtype'], part['shape'])}" for name, part in parts.items()) + "}"
    return _array(spaces["obs_dtype"], spaces["obs_shape"])


def _array(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{dtype} {list(shape)}"


def _action(spaces: SpaceSpec) -> str:
    sizes = spaces["action_sizes"]
    match spaces["action_type"]:
        case "discrete":
            return f"{sizes[0]} actions"
        case "binary":
            return f"{len(sizes)} binary actions"
        case "multidiscrete":
            return f"{len(sizes)} choices of {', '.join(map(str, sizes))}"
    return f"continuous [{len(spaces['action_low'])}]"
