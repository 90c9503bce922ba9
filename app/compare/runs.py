"""Runs of a comparison: their folders, and the processes that train them."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from app.child_processes import child_environ, run_child
from app.runs.attempts import FINISHED, finished_attempt, next_attempt
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.printable import printable_line
from datamodules.core.signals import SignalExit

REFUSED = 2
"""Exit code of a run ended by invalid input: its error message is the result."""


class RefusedRun(ConfigurationError):
    """Settings that `fit` refuses, whatever the seed."""


class Entry(NamedTuple):
    """Run: its setting, its seed, the folder of its first attempt, and the arguments of `fit`."""

    setting: str
    seed: int
    folder: Path
    words: list[str]


class Outcome(NamedTuple):
    """Exit code of a run, the last line of its output, and the file with all of it."""

    code: int
    said: str
    log: Path


def seeded(entry: Entry) -> list[str]:
    """Return the arguments of `fit` with the seed."""
    return [*entry.words, f"--seed_everything={entry.seed}"]


def environ_of(threads: int) -> dict[str, str]:
    """Return the environment variables of a run that computes on so many threads."""
    return {"OMP_NUM_THREADS": str(threads)} | child_environ()


def finished(entry: Entry) -> Path | None:
    """Return the folder of the finished attempt; None if there is none."""
    return finished_attempt(entry.folder)


def mark_finished(entry: Entry, run: Path) -> None:
    """Record that a folder has the finished run."""
    (run / FINISHED).write_text(json.dumps(seeded(entry)), encoding="utf-8")
    print(printable_line(f"{entry.setting}, seed {entry.seed}: done"), flush=True)


def fit(entry: Entry, words: list[str], environ: dict[str, str]) -> str | None:
    """Train in a folder of its own; return an error message if it fails.

    Raises:
        RefusedRun: if `fit` refuses the settings.
    """
    run = next_attempt(entry.folder)
    code, said, log = run_fit(run, words, environ)
    if code == REFUSED:
        raise RefusedRun(f"{entry.setting}, seed {entry.seed}: {said}")
    if code:
        return f"{entry.setting}, seed {entry.seed}, ended with code {code} and said: {said} (all: {log})"
    mark_finished(entry, run)
    return None


def run_fit(run: Path, words: list[str], environ: dict[str, str]) -> Outcome:
    """Train in a new folder, which is removed again if the input is refused or a signal comes before a file.

    Raises:
        SignalExit: if a stop signal arrived.
    """
    run.mkdir(parents=True)
    logger = {"save_dir": str(run.parent.parent.absolute()), "name": run.parent.name, "version": run.name}
    words = words + [f"--trainer.logger.init_args.{key}={value}" for key, value in logger.items()]
    log = run / "log.txt"
    command = [sys.executable, "-m", "app", "fit", *words]
    try:
        with log.open("w", encoding="utf-8") as file:
            done = run_child(command, environ, stdout=file, stderr=subprocess.STDOUT)
    except SignalExit:
        if [*run.iterdir()] == [log]:
            remove(run, log)
        raise
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["nothing"]
    if done.returncode == REFUSED:
        remove(run, log)
    return Outcome(done.returncode, said[-1], log)


def remove(run: Path, log: Path) -> None:
    """Remove the log of a run that wrote nothing else, and its folders if they are empty then."""
    log.unlink()
    for folder in (run, run.parent):
        with suppress(OSError):
            folder.rmdir()
