"""Compare the fingerprints of two commits here: `python -m tests.regression.compare OLD [NEW] [--runs RUN ...]`.

Each commit runs its own `tests.regression.fingerprint` in a git worktree of its own. The exit code is 1 if a run
differs. Name one commit twice to see that this machine repeats itself.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from app.child_processes import exits_with_children, run_child

ROOT = Path(__file__).parents[2]


def fingerprints(commit: str, folder: Path, runs: list[str]) -> dict[str, str]:
    """Check the commit out into `folder`, run its fingerprints there, and return them by name."""
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), commit], check=True)
    try:
        environ = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.regression.fingerprint", *runs]
        done = run_child(command, environ, cwd=folder, stdout=subprocess.PIPE)
        done.check_returncode()
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)
    return json.loads(done.stdout)


def main() -> None:
    """Print each run's two hashes and whether they are equal.

    Raises:
        SystemExit: with code 1 if a run differs.
    """
    parser = argparse.ArgumentParser(description="Compare the fingerprints of two commits on this machine.")
    parser.add_argument("old")
    parser.add_argument("new", nargs="?", default="HEAD")
    parser.add_argument("--runs", nargs="*", default=[], help="names of runs; all without")
    asked = parser.parse_args()
    with exits_with_children(), tempfile.TemporaryDirectory() as folder:
        old = fingerprints(asked.old, Path(folder, "old"), asked.runs)
        new = fingerprints(asked.new, Path(folder, "new"), asked.runs)
    differing = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    for name in {**old, **new}:
        print(f"{name:22} {old.get(name, '-')}  {'DIFFERS ' + new.get(name, '-') if name in differing else 'equal'}")
    print(f"{len(old)} runs, {len(differing)} differ")
    raise SystemExit(bool(differing))


if __name__ == "__main__":
    main()
