"""Train for two iterations, then load the best checkpoint and play: `python -m tests.packages.try_env OPTIONS`.

The options are those of `fit`. It ends as the program does: with code 2 and one sentence for what is refused.
"""

import sys
from pathlib import Path

import app.cli.main  # noqa: F401  (first, so that Lightning's log handler keeps its stream)
from app.__main__ import main


def run(verb: str, words: list[str]) -> None:
    """Run a verb of the program."""
    sys.argv = ["app", verb, *words]
    main()


if __name__ == "__main__":
    options = sys.argv[1:]
    run("fit", options)
    best = next(Path.cwd().rglob("best*.ckpt"), None)
    if best is None:
        sys.exit("no checkpoint was written")
    run("predict", [*options, "--ckpt_path", str(best)])
    if next(Path.cwd().rglob("trajectories.npz"), None) is None:
        sys.exit("no trajectories were written")
