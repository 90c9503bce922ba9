"""Try a row of the table as a user does, and print its cells: `python -m tests.packages.try_env INDEX`.

Every verb of the program runs in a fork of this process, which has imported torch, so that each begins as a program of
its own does, and costs less.
"""

import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from pathlib import Path

import app.cli.main  # (first, so that Lightning's log handler keeps its stream)
import app.export.main
import app.play.main
import app.verify.main  # noqa: F401
from app.__main__ import main
from tests.packages.rows import ROWS

SMALL = (
    "--data.num_envs 4 --data.total_env_steps 128 --data.eval_episodes 2 --data.eval_max_steps 50"
    " --trainer.max_steps 2 --trainer.val_check_interval 1 --trainer.accelerator cpu"
)
LONG = "--data.total_env_steps=100000"
SECONDS = 600
"""Limit of one verb."""

CHECKS = ("contract", "determinism", "export")
"""The checks of `verify` that depend on the environment, without those that need further runs."""

OF_THE_ENV = {"contract", "determinism"}
"""The checks that fail for a fault of the environment's own."""

YES = "yes"


class Failure(Exception):
    """A verb that did not do its work; its text is the cell of the table."""


def outcomes(words: list[str]) -> list[str]:
    """Return the cells of an environment in the working directory; only the first if it cannot be trained.

    Args:
        words: options of `fit`.
    """
    trust = words.index("--trust") if "--trust" in words else len(words)
    try:
        run("fit", *words, *shlex.split(SMALL))
        options = ["--ckpt_path", found("best*.ckpt"), *words[trust : trust + 2]]
    except Failure as failure:
        return [str(failure)]
    return [YES, *(cell(verb, options) for verb in (play, export, verify))]


def play(options: Sequence[str]) -> None:
    """Write a video."""
    run("play", *options, "--video", "episode.mp4")
    found("episode.mp4")


def export(options: Sequence[str]) -> None:
    """Export as ONNX, compared on recorded observations."""
    run("export", *options, "--format", "onnx", "--observations", "100")
    found("policy.onnx")


def verify(options: Sequence[str]) -> str:
    """Verify the run's config, with steps for all iterations; return which checks cannot be made."""
    said = run("verify", "--config", found("config.yaml"), "--only", *CHECKS, LONG, *options[2:])
    cannot = re.findall(r"^(\w+) +cannot ", said, re.MULTILINE)
    return f"; cannot: {', '.join(cannot)}" if cannot else ""


def cell(verb: Callable[..., str | None], options: Sequence[str]) -> str:
    """Return the cell of a column."""
    try:
        return f"{YES}{verb(options) or ''}"
    except Failure as failure:
        return str(failure)


def run(*words: str) -> str:
    """Run a verb of the program and return its output.

    Raises: Failure with the last line of its messages, or the checks that fail.
    """
    out, err = Path("out.txt"), Path("err.txt")
    process = get_context("fork").Process(target=program, args=(words, out, err))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        raise Failure(f"**fails**: more than {SECONDS} s")
    if process.exitcode == 0:
        return out.read_text()
    if failed := re.findall(r"^(\w+) +fails +(.*)", out.read_text(), re.MULTILINE):
        said = "; ".join(f"{name}: {text}" for name, text in failed)
        raise Failure(f"reports {said}" if {name for name, _ in failed} <= OF_THE_ENV else f"**fails**: {said}")
    lines = [line.strip() for line in err.read_text().splitlines() if line.strip()]
    last = "".join(each for each in (lines or [f"exit status {process.exitcode}"])[-1] if each.isprintable())
    raise Failure(f"refused: {last}" if process.exitcode == 2 else f"**fails**: {last:.300}")


def program(words: Sequence[str], out: Path, err: Path) -> None:
    """Run a verb as the process of a shell does."""
    for stream, path in enumerate((out, err), start=1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.argv = ["app", *words]
    main()


def found(pattern: str) -> str:
    """Return the path of a file that a verb wrote.

    Raises: Failure if there is none.
    """
    path = next(Path().rglob(pattern), None)
    if path is None:
        raise Failure(f"**fails**: no {pattern} was written")
    return str(path)


if __name__ == "__main__":
    row = ROWS[int(sys.argv[1])]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        print(json.dumps(outcomes(["--data.env", row.env, *shlex.split(row.options)])))
