"""Processes that run this program again."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def child_environ() -> dict[str, str]:
    """This process's environment, in which a child finds the packages, and the user's modules, from any folder."""
    paths = [str(ROOT), str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
