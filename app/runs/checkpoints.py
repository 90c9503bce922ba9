"""Runs on disk: where an experiment keeps them, which checkpoint `last` and `best` mean, what a checkpoint holds."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from callbacks.run_control.checkpoint_index import verify_index
from datamodules.core.errors import UsageError
from datamodules.core.files.tensor_files import load_tensors

RUN_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,64}")


class Experiment(NamedTuple):
    """Where the runs of one experiment lie: `folder/version`; every version when `version` is None.

    An empty version is the folder itself.
    """

    folder: Path
    version: str | None

    def runs(self) -> list[Path]:
        """The experiment's run folders."""
        if self.version is not None:
            return [self.folder / self.version]
        return [path for path in self.folder.iterdir() if path.is_dir()] if self.folder.is_dir() else []


class Difference(NamedTuple):
    """An option of the model that is one thing here and another in a checkpoint."""

    key: str
    here: Any
    there: Any


def experiment_of(trainer: Mapping[str, Any]) -> Experiment:
    """The experiment that the Trainer's settings describe, from its first logger.

    Raises:
        UsageError: if a logger's name or version is not a plain file name.
    """
    root = trainer.get("default_root_dir") or os.getcwd()
    settings = next(_loggers(trainer.get("logger")), {})
    for key in ("name", "version"):
        value = settings.get(key)
        if isinstance(value, str) and value and not RUN_NAME.fullmatch(value):
            raise UsageError(
                f"The logger's {key} is `{value}`; use 1 to 64 letters, digits, dots, dashes, underscores."
            )
    name = settings.get("name", "lightning_logs")
    version = settings.get("version")
    version = f"version_{version}" if isinstance(version, int) else version
    return Experiment(Path(settings.get("save_dir") or root) / (name or ""), version)


def _loggers(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value.get("init_args") or {}
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for item in value:
            yield from _loggers(item)


def require_writable(folder: Path) -> None:
    """Check, without creating anything, that a folder exists or can be made, and written to.

    Raises:
        UsageError: if it cannot.
    """
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise UsageError(
            f"The run folder {folder} cannot be made, because {existing} is a file: choose another save_dir."
        )
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(
            f"The run folder {folder} cannot be written: choose another save_dir, or change its permissions."
        )


def load_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a checkpoint, on the CPU: tensors and plain types only, so that loading never runs code.

    Raises:
        UsageError: if the file is damaged, holds anything else, or is not a checkpoint.
    """
    verify_index(path)
    checkpoint = load_tensors(path, cure="name another checkpoint")
    if not isinstance(checkpoint, dict) or "state_dict" not in checkpoint:
        raise UsageError(f"{path} is not a checkpoint of this program: it has no weights under `state_dict`.")
    return checkpoint


def require_same_algorithm(path: Path, checkpoint: Mapping[str, Any], class_path: str) -> None:
    """Check that a checkpoint was written by the configured algorithm.

    Raises:
        UsageError: if another algorithm wrote it; names both.
    """
    wrote = checkpoint.get("hyper_parameters", {}).get("_class_path")
    if wrote is not None and wrote != class_path:
        raise UsageError(f"{path} was written by {wrote}, but the model is {class_path}: use that algorithm's config.")


def require_same_spaces(path: Path, checkpoint: Mapping[str, Any], spaces: Mapping[str, Any]) -> None:
    """Check that a checkpoint was learned in the spaces of the configured environment.

    Raises:
        UsageError: if any part of the spaces differs; names each.
    """
    learned = checkpoint.get("spaces") or checkpoint.get("hyper_parameters", {}).get("spaces")
    if learned is None:
        return
    different = [key for key in spaces if _plain(learned.get(key)) != _plain(spaces[key])]
    if different:
        parts = "; ".join(f"{key} {learned.get(key)} there, {spaces[key]} here" for key in different)
        raise UsageError(f"{path} was learned in an environment of other spaces ({parts}): use its environment.")


def different_options(checkpoint: Mapping[str, Any], options: Mapping[str, Any]) -> list[Difference]:
    """Model options that differ from a checkpoint's, those of the same class each by itself."""
    recorded = checkpoint.get("hyper_parameters", {})
    return list(_differences({key: value for key, value in options.items() if key != "spaces"}, recorded, ""))


def _differences(here: Mapping[str, Any], there: Mapping[str, Any], above: str) -> Iterator[Difference]:
    for key in (key for key in here if key in there):
        one, other = _plain(here[key]), _plain(there[key])
        kinds = [each.get("class_path") if isinstance(each, Mapping) else None for each in (one, other)]
        if kinds[0] is not None and kinds[0] == kinds[1]:
            yield from _differences(one.get("init_args") or {}, other.get("init_args") or {}, f"{above}{key}.")
        elif one != other:
            yield Difference(f"{above}{key}", one, other)


def misfit(path: Path, checkpoint: Mapping[str, Any], model: Mapping[str, Any], differences: list[Difference]) -> str:
    """Why the weights of a checkpoint are not those of a model, and which settings to look at.

    Args:
        path, checkpoint: of the weights.   model: `state_dict` of the model.   differences: of the options.
    """
    sizes = [{name: list(tensor.shape) for name, tensor in each.items()} for each in (checkpoint["state_dict"], model)]
    there, here = ({name: str(size) for name, size in each.items()} for each in sizes)
    name = next(name for name in {**there, **here} if there.get(name) != here.get(name))
    what = f"`{name}` is {there.get(name, 'missing')} there and {here.get(name, 'missing')} here"
    shaping = [each for each in differences if not isinstance(each.here, float)]
    listed = "; ".join(f"model.{each.key} is {each.there} there and {each.here} here" for each in shaping)
    cure = f"use the checkpoint's settings ({listed})" if listed else "its code has changed since, or its environment"
    return f"{path} does not fit the model, because {what}: {cure}."


def _plain(value: Any) -> Any:
    """Lists for tuples, so that values from YAML and from a checkpoint compare."""
    if isinstance(value, Mapping):
        return {key: _plain(child) for key, child in value.items()}
    return [_plain(child) for child in value] if isinstance(value, list | tuple) else value
