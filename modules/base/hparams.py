"""Hyperparameters as plain data, so that a checkpoint makes its module again with no configuration at hand."""

import functools
import inspect
import warnings
from collections.abc import Mapping
from types import FrameType, FunctionType
from typing import Any, cast, get_args, get_origin

from lightning.pytorch import LightningModule

from datamodules.core.errors import UsageError
from datamodules.core.files.tensor_files import load_tensors
from datamodules.core.required_values import require_values

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
    and are left out: their defaults apply, or `load_from_checkpoint` is given them again. Of a class that is not the
    default one the arguments are complete, since the parser keeps those of the default class that are not given.
    """
    if "_instantiator" in hparams:
        return dict(hparams)
    parameters = inspect.signature(module).parameters
    plain = {key: _plain(value, parameters.get(key)) for key, value in hparams.items()}
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


def _plain(value: Any, parameter: inspect.Parameter | None = None) -> Any:
    """The value as plain data; `parameter` is the one that it is given for."""
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Mapping):
        return _all_or_nothing({str(key): _plain(child) for key, child in value.items()})
    if isinstance(value, list | tuple):
        children = [_plain(child) for child in value]
        return NotImplemented if any(child is NotImplemented for child in children) else type(value)(children)
    if isinstance(value, type) and parameter is not None and _takes_class(parameter.annotation):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, functools.partial) and isinstance(value.func, type) and not value.args:
        return _class(value.func, value.keywords, parameter)
    return _class(value, {}, parameter) if isinstance(value, type) else NotImplemented


def _class(kind: type, arguments: Mapping[str, Any], parameter: inspect.Parameter | None) -> Any:
    """A class and its arguments, complete where another class is the default, whose settings would be kept."""
    plain: dict[str, Any] = {"class_path": f"{kind.__module__}.{kind.__qualname__}"}
    default = inspect.Parameter.empty if parameter is None else parameter.default
    own = inspect.signature(kind).parameters if arguments or callable(default) else {}
    given = {name: _plain(value, own.get(name)) for name, value in arguments.items()}
    if callable(default) and default not in (kind, inspect.Parameter.empty):
        defaults = {name: _plain(each.default, each) for name, each in own.items() if each.default is not each.empty}
        given = {name: value for name, value in defaults.items() if value is not NotImplemented} | given
    given = _all_or_nothing(given)
    return given if given is NotImplemented else plain | ({"init_args": given} if given else {})


def _all_or_nothing(plain: dict[str, Any]) -> Any:
    return NotImplemented if any(value is NotImplemented for value in plain.values()) else plain


def _takes_class(annotation: Any) -> bool:
    """Tell whether a class is taken as it is, such as an activation's, and not to be made."""
    return any(get_origin(each) is type for each in (annotation, *get_args(annotation)))
