"""Resolve `--ckpt_path last` and `best`: by version number, then iteration or score, never by file times."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from app.class_paths import canonical_path
from app.runs.checkpoints import Experiment, load_checkpoint
from callbacks.run_control.checkpoint_index import IndexEntry, entry_of, read_index, verify_index
from datamodules.core.errors import ConfigurationError

LAST_NAME = re.compile(r"last(?:-v(\d+))?\.ckpt")
"""Name of the last checkpoint in Lightning; the number counts runs in the same folder."""

VALUE_IN_NAME = re.compile(r"-?\d+(?:\.\d+)?(?=(?:-v\d+)?\.ckpt$)")
NUMBER_AT_END = re.compile(r"(\d+)$")


def find_checkpoint(wanted: str, experiment: Experiment, environment: Any = None, algorithm: str | None = None) -> Path:
    """Return the file of `--ckpt_path`: `last` or `best` of the newest run that has one, or a path.

    The newest run is that of the highest version number; versions with other names come after `version_N`. Damaged
    checkpoints are skipped with a warning.

    Args:
        environment: environment that `best` must have been trained in
            (`callbacks.run_control.checkpoint_index.environment_of`); None: any.
        algorithm: class path of the algorithm that must have written `last` or `best`; None: any.

    Raises:
        ConfigurationError: if there is none, or if it is not a local file.
    """
    if wanted in ("last", "best"):
        for run in sorted(experiment.runs(), key=_order, reverse=True):
            folder = run / "checkpoints"
            for path in _lasts(folder) if wanted == "last" else _bests(folder, environment):
                if _usable(path) and _is_written_by(path, algorithm):
                    return path
        written_by = f" of {algorithm}" if algorithm else ""
        trained_in = " of this environment" if wanted == "best" and environment else ""
        raise ConfigurationError(
            f"There is no `{wanted}` checkpoint{written_by}{trained_in} in {experiment.folder}: train first, or name a"
            " file."
        )
    if "://" in wanted or wanted.startswith("registry:"):
        raise ConfigurationError(f"The checkpoint `{wanted}` is not a local file: download it and give its path.")
    if not Path(wanted).is_file():
        raise ConfigurationError(
            f"There is no checkpoint `{wanted}`: give a file, or `last` or `best` of this experiment."
        )
    return Path(wanted)


def checkpoint_in(path: Path) -> Path:
    """Return a checkpoint: the file itself, the best of a run folder, else its last.

    Of an experiment's folder it is that of the newest run that has one.

    Raises:
        ConfigurationError: if there is none.
    """
    if "://" in str(path):
        raise ConfigurationError(f"The checkpoint {path} is not a local file: download it and give its path.")
    if not path.is_dir():
        if path.is_file():
            return path
        raise ConfigurationError(f"There is no checkpoint {path}: give a file, or the folder of a run.")
    folder = path.parent if path.name == "checkpoints" else path
    runs = [folder] if (folder / "checkpoints").is_dir() else sorted(Experiment(folder, None).runs(), key=_order)
    for run in reversed(runs):
        for found in (*_bests(run / "checkpoints", None), *_lasts(run / "checkpoints")):
            if _usable(found):
                return found
    raise ConfigurationError(f"There is no checkpoint in {path}: give a file, or the folder of a run.")


def _order(run: Path) -> tuple[bool, int, int, str]:
    """Return a sort key: `version_N` by number; then other names, by a trailing number, by iteration, by name."""
    number = NUMBER_AT_END.search(run.name)
    numbered = re.fullmatch(r"version_\d+", run.name) is not None
    iteration = -1
    if not numbered:
        entries = [read_index(path) for path in _lasts(run / "checkpoints")]
        iteration = max((entry[0].iteration for entry in entries if entry), default=-1)
    return numbered, int(number[1]) if number else -1, iteration, run.name


def _lasts(folder: Path) -> list[Path]:
    """Return the last checkpoints of a folder, the newest first."""
    names = {path: LAST_NAME.fullmatch(path.name) for path in folder.glob("last*.ckpt")}
    found = {path: int(match[1] or 0) for path, match in names.items() if match}
    return sorted(found, key=lambda path: found[path], reverse=True)


def _bests(folder: Path, environment: Any) -> Iterator[Path]:
    """Yield the checkpoints of a folder, the best first: the one recorded in `last`, then the others by score."""
    lasts = _lasts(folder)
    entries = {path: _entry(path) for path in lasts}
    others = [path for path in folder.glob("*.ckpt") if path not in entries and path.is_file()]
    recorded = [entry for path in lasts if (entry := entries[path]) is not None]
    if environment is not None:
        known = [entry.environment for entry in recorded] or [e.environment for p in others if (e := _entry(p))]
        if known and known[0] is not None and known[0] != environment:
            return
    if not recorded:
        recorded = sorted(
            (e for path in others if (e := _entry(path)) is not None), key=lambda e: e.iteration, reverse=True
        )
    given = []
    for entry in recorded:
        for path in (folder / Path(entry.best).name, Path(entry.best)):
            if entry.best and path.is_file() and path not in given:
                given.append(path)
                yield path
                break
    sign = -1 if recorded and recorded[0].mode == "min" else 1
    scores = {path: sign * _score(path) for path in others if path.name.startswith("best") and path not in given}
    yield from sorted(scores, key=lambda path: (scores[path], path.name), reverse=True)


def _score(path: Path) -> float:
    """Return the score in a checkpoint's index, else the number at the end of its name."""
    entries, named = read_index(path), VALUE_IN_NAME.search(path.name)
    if entries and entries[0].score is not None:
        return entries[0].score
    return float(named[0]) if named else -math.inf


def _entry(path: Path) -> IndexEntry | None:
    """Return the index entry of a checkpoint, computed if missing; None if the file cannot be read."""
    if entries := read_index(path):
        return entries[0]
    try:
        return entry_of(load_checkpoint(path), path, "")
    except ConfigurationError as error:
        rank_zero_warn(f"Passed over: {error}")
        return None


def _is_written_by(path: Path, algorithm: str | None) -> bool:
    """Return whether a checkpoint was written by an algorithm, as far as it says; say which one if not."""
    wrote = None if algorithm is None else load_checkpoint(path).get("hyper_parameters", {}).get("_class_path")
    if algorithm is None or wrote is None or canonical_path(wrote) == canonical_path(algorithm):
        return True
    rank_zero_info(f"Passed over: {path} was written by {wrote}, not by {algorithm}.")
    return False


def _usable(path: Path) -> bool:
    """Return whether a checkpoint can be read; warn if not."""
    try:
        if not path.is_file():
            raise ConfigurationError(f"{path} is a link to a file that is gone.")
        if read_index(path):
            verify_index(path)
        else:
            load_checkpoint(path)
    except (ConfigurationError, OSError) as error:
        rank_zero_warn(f"Passed over: {error}")
        return False
    return True
