"""Folders of the attempts of a comparison's run: a new one after each attempt that cannot be resumed."""

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

FINISHED = "finished.json"
"""File in the folder of a finished attempt, with its command line: the same comparison, started again, skips it."""

SEED = re.compile(r"(seed_\d+)(_\d+)?")
"""Name of an attempt's folder; the first group is that of the first attempt."""

POPULATION = re.compile(r"population(_\d+)?")
"""Name of the folder of an unfinished population, whose members are attempts of the runs beside it."""


def attempts(folder: Path) -> Iterator[Path]:
    """Yield the folders of a run, given that of its first attempt."""
    for number in itertools.count(1):
        yield folder if number == 1 else folder.with_name(f"{folder.name}_{number}")


def next_attempt(folder: Path) -> Path:
    """Return the folder of a run's next attempt, which does not exist yet."""
    return next(itertools.dropwhile(os.path.lexists, attempts(folder)))


def tried_attempts(folder: Path) -> list[Path]:
    """Return the existing folders of a run's attempts, given that of the first, oldest first."""
    return list(itertools.takewhile(Path.exists, attempts(folder)))


def finished_attempt(folder: Path) -> Path | None:
    """Return the folder of the finished attempt, given that of the first; None if there is none."""
    return next((run for run in tried_attempts(folder) if (run / FINISHED).is_file()), None)


def is_superseded(folder: Path) -> bool:
    """Return whether a folder is that of an unfinished attempt of a run which a later attempt finished."""
    folder = folder.absolute()
    if (folder / FINISHED).is_file() or not (name := SEED.fullmatch(folder.name)):
        return False
    setting = folder.parents[1] if POPULATION.fullmatch(folder.parent.name) else folder.parent
    return finished_attempt(setting / name[1]) is not None
