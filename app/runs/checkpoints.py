"""Locate the runs of an experiment, and check that checkpoints match the configuration."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from app.class_paths import canonical_path
from datamodules.core.errors import ConfigurationError

RUN_NAME = re.compile(r"(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,64}")


class Experiment(NamedTuple):
    """Location of the runs of one experiment: `folder/version`; every version if `version` is None.

    An empty version is the folder itself.
    """

    folder: Path
    version: str | None

    def runs(self) -> list[Path]:
        """Return the experiment's run folders."""
        if self.version is not None:
            return [self.folder / self.version]
        return [path for path in self.folder.iterdir() if path.is_dir()] if self.folder.is_dir() else []


class OptionDifference(NamedTuple):
    """Model option with different values in this configuration and in a checkpoint."""

    key: str
    here: Any
    there: Any


def experiment_from_config(trainer: Mapping[str, Any]) -> Experiment:
    """Return the experiment of the Trainer's settings, from its first logger.

    Raises:
        ConfigurationError: if a logger's name or version is not a plain file name.
    """
    root = trainer.get("default_root_dir") or os.getcwd()
    settings = next(_loggers(trainer.get("logger")), {})
    for key in ("name", "version"):
        value = settings.get(key)
        if isinstance(value, str) and value and not RUN_NAME.fullmatch(value):
            raise ConfigurationError(
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


def require_same_algorithm(path: Path, checkpoint: Mapping[str, Any], class_path: str) -> None:
    """Check that a checkpoint was written by the configured algorithm.

    Raises:
        ConfigurationError: if another algorithm wrote it; names both.
    """
    wrote = checkpoint.get("hyper_parameters", {}).get("_class_path")
    if wrote is not None and canonical_path(wrote) != canonical_path(class_path):
        raise ConfigurationError(
            f"{path} was written by {wrote}, but the model is {class_path}: use that algorithm's config."
        )


def require_resumable(path: Path, checkpoint: Mapping[str, Any]) -> None:
    """Check that a checkpoint has what a run continues from.

    Raises:
        ConfigurationError: if it has weights only, as the checkpoints of a population's members.
    """
    if "optimizer_states" not in checkpoint:
        raise ConfigurationError(
            f"{path} has weights only, without the states of the optimizers (members of a population have such"
            " checkpoints): it can be tested and loaded, but no run can be resumed from it."
        )


def require_same_spaces(path: Path, checkpoint: Mapping[str, Any], spaces: Mapping[str, Any]) -> None:
    """Check that a checkpoint has the spaces of the configured environment.

    Raises:
        ConfigurationError: if any part of the spaces differs; names each.
    """
    learned = checkpoint.get("spaces") or checkpoint.get("hyper_parameters", {}).get("spaces")
    if learned is None:
        return
    different = [key for key in spaces if _plain(learned.get(key)) != _plain(spaces[key])]
    if different:
        parts = "; ".join(
            f"{key} {learned.get(key)} in the checkpoint, {spaces[key]} in the configuration" for key in different
        )
        raise ConfigurationError(
            f"{path} was trained in an environment with other spaces ({parts}): use that environment."
        )


def different_options(checkpoint: Mapping[str, Any], options: Mapping[str, Any]) -> list[OptionDifference]:
    """Return the model options that differ from a checkpoint's; options of nested classes are compared one by one."""
    recorded = checkpoint.get("hyper_parameters", {})
    return list(_differences({key: value for key, value in options.items() if key != "spaces"}, recorded, ""))


def _differences(here: Mapping[str, Any], there: Mapping[str, Any], above: str) -> Iterator[OptionDifference]:
    for key in (key for key in here if key in there):
        one, other = _plain(here[key]), _plain(there[key])
        kinds = [each.get("class_path") if isinstance(each, Mapping) else None for each in (one, other)]
        if kinds[0] is not None and kinds[0] == kinds[1]:
            yield from _differences(one.get("init_args") or {}, other.get("init_args") or {}, f"{above}{key}.")
        elif one != other:
            yield OptionDifference(f"{above}{key}", one, other)


def misfit(
    path: Path, checkpoint: Mapping[str, Any], model: Mapping[str, Any], differences: list[OptionDifference]
) -> str:
    """Return why the weights of a checkpoint do not match a model, and which settings to check.

    Args:
        path, checkpoint: of the weights.   model: `state_dict` of the model.   differences: of the options.
    """
    sizes = [{name: list(tensor.shape) for name, tensor in each.items()} for each in (checkpoint["state_dict"], model)]
    there, here = ({name: str(size) for name, size in each.items()} for each in sizes)
    name = next(name for name in {**there, **here} if there.get(name) != here.get(name))
    what = f"`{name}` is {there.get(name, 'missing')} in the checkpoint and {here.get(name, 'missing')} in the model"
    shaping = [each for each in differences if not isinstance(each.here, float)]
    listed = "; ".join(
        f"model.{each.key} is {each.there} in the checkpoint and {each.here} in the model" for each in shaping
    )
    cure = f"use the checkpoint's settings ({listed})" if listed else "its code or its environment has changed since"
    return f"{path} does not fit the model, because {what}: {cure}."


def _plain(value: Any) -> Any:
    """Convert tuples to lists, so that values from YAML and from a checkpoint compare equal."""
    if isinstance(value, Mapping):
        return {key: _plain(child) for key, child in value.items()}
    return [_plain(child) for child in value] if isinstance(value, list | tuple) else value
