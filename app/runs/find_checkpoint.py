"""Resolve `--ckpt_path`, `last`, `best` or a path: by version number, then iteration or score, never by file times."""

from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_info

from app.class_paths import canonical_path
from app.runs.checkpoints import Experiment
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.run_checkpoints import (
    best_checkpoints,
    checkpoint_in,
    is_usable,
    last_checkpoints,
    load_checkpoint,
    run_order,
)


def find_checkpoint(
    wanted: str,
    experiment: Experiment,
    environment: Any = None,
    algorithm: str | None = None,
    resumes: bool = False,
) -> Path:
    """Return the file of `--ckpt_path`: `last` or `best` of the newest run that has one, or a path.

    A path is that of a file, or of the folder of a run or an experiment, of which it means the last checkpoint where a
    run is resumed, else the best (`datamodules.core.files.run_checkpoints.checkpoint_in`).

    The newest run is that of the highest version number; versions with other names come after `version_N`. Damaged
    checkpoints are skipped with a warning.

    Args:
        environment: environment that `best` must have been trained in
            (`datamodules.core.files.checkpoint_index.environment_of`); None: any.
        algorithm: class path of the algorithm that must have written `last` or `best`; None: any.
        resumes: whether a run continues from it.

    Raises:
        ConfigurationError: if there is none, or if it is empty or not a local file.
    """
    require_path(wanted)
    if wanted in ("last", "best"):
        for run in sorted(experiment.runs(), key=run_order, reverse=True):
            folder = run / "checkpoints"
            for path in last_checkpoints(folder) if wanted == "last" else best_checkpoints(folder, environment):
                if is_usable(path) and _is_written_by(path, algorithm):
                    return path
        written_by = f" of {algorithm}" if algorithm else ""
        trained_in = " of this environment" if wanted == "best" and environment else ""
        raise ConfigurationError(
            f"There is no `{wanted}` checkpoint{written_by}{trained_in} in {experiment.folder}: train first, or name a"
            " file."
        )
    if "://" in wanted or wanted.startswith("registry:"):
        raise ConfigurationError(f"The checkpoint `{wanted}` is not a local file: download it and give its path.")
    path = Path(wanted)
    if path.is_dir():
        return find_checkpoint("last", experiment_in(path)) if resumes else checkpoint_in(path)
    if not path.is_file():
        raise ConfigurationError(
            f"There is no checkpoint `{wanted}`: give a file, the folder of a run, or `last` or `best` of this"
            " experiment."
        )
    return path


def require_path(ckpt_path: str) -> None:
    """Refuse an empty value of `--ckpt_path`, such as that of a shell variable which is not set.

    Raises:
        ConfigurationError: if it is empty.
    """
    if not ckpt_path:
        raise ConfigurationError(
            "`--ckpt_path` is empty: give a file, the folder of a run, `last` or `best`, or leave the option out."
        )


def experiment_in(path: Path) -> Experiment:
    """Return what a folder holds: one run, or an experiment with several; that of a run's checkpoints means the run."""
    folder = path.parent if path.name == "checkpoints" else path
    return Experiment(folder, "" if (folder / "checkpoints").is_dir() else None)


def _is_written_by(path: Path, algorithm: str | None) -> bool:
    """Return whether a checkpoint was written by an algorithm, as far as it says; say which one if not."""
    wrote = None if algorithm is None else load_checkpoint(path).get("hyper_parameters", {}).get("_class_path")
    if algorithm is None or wrote is None or canonical_path(wrote) == canonical_path(algorithm):
        return True
    rank_zero_info(f"Passed over: {path} was written by {wrote}, not by {algorithm}.")
    return False
