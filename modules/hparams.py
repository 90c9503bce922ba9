"""Hyperparameters as plain data, so that a checkpoint makes its module again with no configuration at hand."""

import functools
import inspect
import warnings
from collections.abc import Mapping
from types import FrameType, FunctionType
from typing import Any, cast

from lightning.pytorch import LightningModule

from datamodules.core.required_values import require_values
from datamodules.core.tensor_files import load_tensors
from datamodules.types import UsageError

INSTANTIATOR = "lightning.pytorch.cli.instantiate_module"
"""Lightning's maker of a module from plain data; checkpoints of command-line runs name it too."""

IMPORTABLE = ("modules", "torch.nn", "torch.optim")
"""What a checkpoint may name to be imported, besides the package of the class that loads it."""

PLAIN = (str, int, float, bool, type(None))


def keep_hyperparameters(module: LightningModule) -> None:
    """`save_hyperparameters` for an `__init__` that takes functions; call it there.

    Bare functions, which no checkpoint can hold, are left out: their defaults apply again.

    Raises: UsageError for an argument that is None where it may not be.
    """
    caller = cast(FrameType, cast(FrameType, inspect.currentframe()).f_back)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning's, about just these functions
        module.save_hyperparameters(frame=caller)
    require_values("model", type(module), module.hparams)
    for hparams in (cast(dict[str, Any], module._hparams), cast(dict[str, Any], module._hparams_initial)):
        for name in [name for name, value in hparams.items() if isinstance(value, FunctionType)]:
            del hparams[name]


def described(hparams: Mapping[str, Any], module: type) -> dict[str, Any]:
    """The hyperparameters of a module made in Python, in the form that command-line runs save.

    Classes and `functools.partial` of classes become `class_path` and `init_args`. Other functions cannot be described
    and are left out: their defaults apply, or `load_from_checkpoint` is given them again.
    """
    if "_instantiator" in hparams:
        return dict(hparams)
    plain = {key: _plain(value) for key, value in hparams.items()}
    kept = {key: value for key, value in plain.items() if value is not NotImplemented}
    return {"_class_path": f"{module.__module__}.{module.__qualname__}", **kept, "_instantiator": INSTANTIATOR}


def check_checkpoint(path: Any, trusted: tuple[str, ...]) -> None:
    """Refuse a checkpoint that is not a local file, is damaged, or whose hyperparameters may not be imported.

    Raises: UsageError.
    """
    if "://" in str(path):
        raise UsageError(f"The checkpoint {path} is not a local file: download it and give its path.")
    content = load_tensors(path, cure="load another checkpoint")
    if not isinstance(content, dict) or not isinstance(content.get("state_dict"), dict):
        raise UsageError(f"{path} is not a checkpoint: it has no weights under `state_dict`.")
    check_imports(content.get("hyper_parameters", {}), trusted)


def check_imports(hparams: Any, trusted: tuple[str, ...]) -> None:
    """Refuse hyperparameters that name anything to import outside `IMPORTABLE` and `trusted`.

    Raises: UsageError.
    """
    if isinstance(hparams, Mapping):
        hparams = [value for key, value in hparams.items() if key != "_instantiator"]
    if isinstance(hparams, list | tuple):
        for value in hparams:
            check_imports(value, trusted)
    dotted = isinstance(hparams, str) and "." in hparams and all(part.isidentifier() for part in hparams.split("."))
    if dotted and not any(hparams.startswith(f"{root}.") for root in (*IMPORTABLE, *trusted)):
        raise UsageError(
            f"The checkpoint names {hparams}, which may not be imported: if that code is yours, load it with"
            f" trusted=({hparams.partition('.')[0]!r},)."
        )


def _plain(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Mapping):
        plain = {str(key): _plain(child) for key, child in value.items()}
        return NotImplemented if any(child is NotImplemented for child in plain.values()) else plain
    if isinstance(value, list | tuple):
        children = [_plain(child) for child in value]
        return NotImplemented if any(child is NotImplemented for child in children) else type(value)(children)
    if isinstance(value, functools.partial) and isinstance(value.func, type) and not value.args:
        arguments = _plain(value.keywords)
        return NotImplemented if arguments is NotImplemented else {**_plain(value.func), "init_args": arguments}
    if isinstance(value, type):
        return {"class_path": f"{value.__module__}.{value.__qualname__}"}
    return NotImplemented
