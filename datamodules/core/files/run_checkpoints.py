"""Load checkpoints, and choose among those of a run: by iteration or score, never by file times."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.checkpoint_index import IndexEntry, entry_of, read_index, verify_index
from datamodules.core.files.tensor_files import load_tensors

LAST_NAME = re.compile(r"last(?:-v(\d+))?\.ckpt")
"""Name of the last checkpoint in Lightning; the number counts runs in the same folder."""

VALUE_IN_NAME = re.compile(r"-?\d+(?:\.\d+)?(?=(?:-v\d+)?\.ckpt$)")
NUMBER_AT_END = re.compile(r"(\d+)$")


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Load a checkpoint on the CPU: tensors and plain types only, so that no code is executed.

    Raises:
        ConfigurationError: if the file is damaged, holds anything else, or is not a checkpoint.
    """
    verify_index(path)
    checkpoint = load_tensors(path, cure="name another checkpoint")
    if not isinstance(checkpoint, dict) or "state_dict" not in checkpoint:
        raise ConfigurationError(f"{path} is not a checkpoint of Leyden: it has no weights under `state_dict`.")
    return checkpoint


def checkpoint_in(path: str | Path) -> Path:
    """Return a checkpoint: the file itself, the best of a run folder, else its last.

    Of an experiment's folder it is that of the newest run that has one.

    Raises:
        ConfigurationError: if there is none, or the path is empty or no local one.
    """
    if not str(path):
        raise ConfigurationError("The path is empty, as that of the best checkpoint before the first evaluation is.")
    if "://" in str(path):
        raise ConfigurationError(f"The checkpoint {path} is not a local file: download it and give its path.")
    path = Path(path)
    if not path.is_dir():
        if path.is_file():
            return path
        raise ConfigurationError(f"There is no checkpoint {path}: give a file, or the folder of a run.")
    folder = path.parent if path.name == "checkpoints" else path
    runs = (
        [folder] if (folder / "checkpoints").is_dir() else sorted(filter(Path.is_dir, folder.iterdir()), key=run_order)
    )
    for run in reversed(runs):
        for found in (*best_checkpoints(run / "checkpoints", None), *last_checkpoints(run / "checkpoints")):
            if is_usable(found):
                return found
    raise ConfigurationError(f"There is no checkpoint in {path}: give a file, or the folder of a run.")


def run_order(run: Path) -> tuple[bool, int, int, str]:
    """Return a sort key: `version_N` by number; then other names, by a trailing number, by iteration, by name."""
    number = NUMBER_AT_END.search(run.name)
    numbered = re.fullmatch(r"version_\d+", run.name) is not None
    iteration = -1
    if not numbered:
        entries = [read_index(path) for path in last_checkpoints(run / "checkpoints")]
        iteration = max((entry[0].iteration for entry in entries if entry), default=-1)
    return numbered, int(number[1]) if number else -1, iteration, run.name


def last_checkpoints(folder: Path) -> list[Path]:
    """Return the last checkpoints of a folder, the newest first."""
    names = {path: LAST_NAME.fullmatch(path.name) for path in folder.glob("last*.ckpt")}
    found = {path: int(match[1] or 0) for path, match in names.items() if match}
    return sorted(found, key=lambda path: found[path], reverse=True)


def best_checkpoints(folder: Path, environment: Any) -> Iterator[Path]:
    """Yield the checkpoints of a folder, the best first: the one recorded in `last`, then the others by score."""
    lasts = last_checkpoints(folder)
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


def is_usable(path: Path) -> bool:
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
