"""Runs of a comparison: their folders, and the processes that train them."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from app.child_processes import child_environ, run_child
from app.monitor.curves import Curves
from app.runs.attempts import FINISHED, finished_attempt, next_attempt, tried_attempts
from app.runs.checkpoints import Experiment, require_resumable
from app.runs.find_checkpoint import find_checkpoint
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.checkpoint_index import entry_of
from datamodules.core.files.printable import printable_line
from datamodules.core.files.run_checkpoints import load_checkpoint
from datamodules.core.signals import SignalExit

REFUSED = 2
"""Exit code of a run ended by invalid input: its error message is the result."""

COMPLETE = "This run is finished"
"""Start of the message of `fit` that refuses to resume a run with all of its env steps."""


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
    tell(entry, "done")


def tell(entry: Entry, event: str) -> None:
    """Print a line about a run."""
    print(printable_line(f"{entry.setting}, seed {entry.seed}: {event}"), flush=True)


def last_checkpoint(entry: Entry) -> Path | None:
    """Return the last checkpoint of the newest attempt that has one; None if there is none to resume from."""
    for run in reversed(tried_attempts(entry.folder)):
        with suppress(ConfigurationError):  # there is none, or it has weights only
            path = find_checkpoint("last", Experiment(run, ""))
            require_resumable(path, load_checkpoint(path))
            return path
    return None


def fit(entry: Entry, words: list[str], environ: dict[str, str]) -> str | None:
    """Resume the interrupted attempt, or train in a new folder if there is none; return an error message on failure.

    Raises:
        RefusedRun: if `fit` refuses the settings.
    """
    reason, tried = "", tried_attempts(entry.folder)
    if (checkpoint := last_checkpoint(entry)) is not None:
        reason, failure = resume(entry, words, environ, checkpoint)
        if not reason:
            return failure
    elif tried:
        reason = f"there is no checkpoint to resume from in {tried[-1]}"
    if reason:
        tell(entry, f"starts again, because {reason}")
    run = next_attempt(entry.folder)
    outcome = run_fit(run, words, environ)
    if outcome.code == REFUSED:
        raise RefusedRun(f"{entry.setting}, seed {entry.seed}: {outcome.said}")
    return record(entry, run, outcome)


def resume(entry: Entry, words: list[str], environ: dict[str, str], checkpoint: Path) -> tuple[str, str | None]:
    """Resume a run in its folder; return why it must start again, empty if not, and an error message if it fails."""
    tell(entry, f"resumes from {checkpoint}")
    run = checkpoint.parents[1]
    outcome = run_fit(run, words, environ, checkpoint)
    if outcome.code == REFUSED and outcome.said.startswith(COMPLETE):
        if not is_evaluated_at_end(run, checkpoint):
            return f"{run} has no evaluation after its last env step", None
        outcome = outcome._replace(code=0)
    anew = f"The same command tries again; to start this seed anew, move the folder {run} elsewhere."
    if outcome.code == REFUSED:
        return "", f"{entry.setting}, seed {entry.seed}, could not be resumed from {checkpoint}: {outcome.said} {anew}"
    failure = record(entry, run, outcome)
    return "", failure and f"{failure}. {anew}"


def is_evaluated_at_end(run: Path, checkpoint: Path) -> bool:
    """Return whether a complete run logged an evaluation after its last env step, that of the last checkpoint.

    Values of an evaluation are those under `eval/`, and the one that the checkpoint monitors.
    """
    curves, entry = Curves(run), entry_of(load_checkpoint(checkpoint), checkpoint, "")
    curves.refresh()
    evaluated = (curve for tag, curve in curves.by_tag.items() if tag.startswith("eval/") or tag == entry.monitor)
    return any(curve.last[0] >= entry.env_steps for curve in evaluated)


def record(entry: Entry, run: Path, outcome: Outcome) -> str | None:
    """Mark a run as finished if it ended well, else return an error message."""
    if outcome.code:
        ended = f"ended with code {outcome.code} and said: {outcome.said} (all: {outcome.log})"
        return f"{entry.setting}, seed {entry.seed}, {ended}"
    mark_finished(entry, run)
    return None


def run_fit(run: Path, words: list[str], environ: dict[str, str], checkpoint: Path | None = None) -> Outcome:
    """Train in a new folder, which is removed again if the input is refused or a signal comes before a file.

    Args:
        checkpoint: the last one in the folder `run`, from which its run is resumed; None: a new folder.

    Raises:
        SignalExit: if a stop signal arrived.
    """
    run.mkdir(parents=True, exist_ok=checkpoint is not None)
    logger = {"save_dir": str(run.parent.parent.absolute()), "name": run.parent.name, "version": run.name}
    words = words + [f"--trainer.logger.init_args.{key}={value}" for key, value in logger.items()]
    words += [] if checkpoint is None else [f"--ckpt_path={checkpoint}"]
    log = run / "log.txt"
    command = [sys.executable, "-m", "app", "fit", *words]
    try:
        with log.open("a", encoding="utf-8") as file:
            done = run_child(command, environ, stdout=file, stderr=subprocess.STDOUT)
    except SignalExit:
        if [*run.iterdir()] == [log]:
            remove(run, log)
        raise
    said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["nothing"]
    if done.returncode == REFUSED and checkpoint is None:
        remove(run, log)
    return Outcome(done.returncode, said[-1], log)


def remove(run: Path, log: Path) -> None:
    """Remove the log of a run that wrote nothing else, and its folders if they are empty then."""
    log.unlink()
    for folder in (run, run.parent):
        with suppress(OSError):
            folder.rmdir()
