"""Packages that register environments with Gymnasium when they are imported, by the ids that they register."""

import importlib
import re
from importlib.util import find_spec

from datamodules.core.errors import ConfigurationError

REGISTERING = {
    r"MiniGrid-|BabyAI-": "minigrid",
    r"(highway|merge|roundabout|parking|intersection|racetrack|exit|two-way|u-turn|lane-keeping)-": "highway_env",
    r"(PointMaze|AntMaze|Fetch|HandManipulate|HandReach|AdroitHand|FrankaKitchen)": "gymnasium_robotics",
    r"FlappyBird-": "flappy_bird_gymnasium",
    r"(mo|deep-sea-treasure|resource-gathering|fruit-tree|minecart|water-reservoir)-": "mo_gymnasium",
    r"(stocks|forex)-": "gym_anytrading",
    r"MinAtar/": "minatar",
}
"""Modules of packages, by a pattern of the beginning of their ids. They are imported only if the user names them."""

ATARI = "ALE/"
"""Beginning of the ids of ale_py, which is imported by itself: it belongs to the extra `atari`."""


def register_atari(env: str) -> None:
    """Register the Atari games if `env` is one of them.

    Raises: ConfigurationError if the extra is not installed.
    """
    if not env.startswith(ATARI):
        return
    if find_spec("ale_py") is None:
        raise ConfigurationError(
            f"{env} needs ale_py, which has the games: pip install -e '.[atari]' in the project's folder."
        )
    importlib.import_module("ale_py")


def advice_on_package(env: str) -> str:
    """Return the advice to name the package that registers an id; empty if the package is unknown."""
    module = next((module for start, module in REGISTERING.items() if re.match(start, env)), None)
    if module is None:
        return ""
    return f"the package {module} registers it: write {module}:{env}, and --trust {module} on the command line."
