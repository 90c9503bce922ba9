"""Environment variables for subprocesses that run this program."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def child_environ() -> dict[str, str]:
    """Return this process's environment variables, with which a child finds all packages from any folder."""
    paths = [str(ROOT), str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
