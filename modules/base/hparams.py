"""Hyperparameters as plain data, so that a module can be rebuilt from its checkpoint alone."""

import functools
import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any, cast, get_args, get_origin

from lightning.pytorch import LightningModule
from lightning.pytorch.utilities import rank_zero_warn

from datamodules.core.arguments import require_values
from datamodules.core.errors import ConfigurationError
from datamodules.core.exports import MODEL_ALLOWED, class_path, may_import
from datamodules.core.files.run_checkpoints import checkpoint_in
from datamodules.core.files.tensor_files import load_tensors

INSTANTIATOR = "lightning.pytorch.cli.instantiate_module"
"""Lightning's function that builds a module from plain data; checkpoints of command-line runs name it too."""

PLAIN_TYPES = (str, int, float, bool, type(None))


def save_plain_hyperparameters(module: LightningModule, ignore: tuple[str, ...] = ()) -> None:
    """Save the hyperparameters of a module whose `__init__` takes functions; call it in `__init__`.

    Plain functions, which a checkpoint cannot store, are left out: their defaults apply when it is loaded.

    Args:
        module: the module.   ignore: arguments that are left out.

    Raises: ConfigurationError for an argument that is None but has no None in its type.
    """
    caller = cast(FrameType, cast(FrameType, inspect.currentframe()).f_back)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Lightning warns that it cannot save functions
        module.save_hyperparameters(frame=caller, ignore=ignore)
    require_values("model", type(module), module.hparams)
    for hparams in (cast(dict[str, Any], module._hparams), cast(dict[str, Any], module._hparams_initial)):
        for name in [name for name, value in hparams.items() if isinstance(value, FunctionType)]:
            del hparams[name]


def to_plain(hparams: Mapping[str, Any], module: type) -> dict[str, Any]:
    """Return the hyperparameters of a module made in Python in the form that command-line runs save.

    Classes and `functools.partial` of classes become `class_path` and `init_args`. Other functions are left out: their
    defaults apply, or `load_from_checkpoint` is given them again. For a class other than the default all arguments are
    saved, since the parser keeps the default class's arguments where none are given.
    """
    if "_instantiator" in hparams:
        return dict(hparams)
    parameters = inspect.signature(module).parameters
    plain = {key: _plain(value, parameters.get(key)) for key, value in hparams.items()}
    kept = {key: value for key, value in plain.items() if value is not NotImplemented}
    return {"_class_path": class_path(module), **kept, "_instantiator": INSTANTIATOR}


def objects_left_out(hparams: Mapping[str, Any], module: type) -> list[str]:
    """Return the names of the hyperparameters that `to_plain` leaves out, with one warning; functions are not counted.

    They are objects that were made in Python, such as a dynamics model: their arguments are not known.
    """
    plain = {} if "_instantiator" in hparams else to_plain(hparams, module)
    names = [key for key in hparams if plain and key not in plain]
    if names:
        warn_once(
            f"The checkpoints of this {module.__name__} hold the weights but not {_named(names)}, made in Python:"
            f" {_cure(names, module.__name__)}"
        )
    return names


@functools.cache
def warn_once(message: str) -> None:
    """Give a warning on the first rank, each message once: a run saves many checkpoints."""
    rank_zero_warn(message)


@contextmanager
def checked_loading(path: Any, trusted: tuple[str, ...], given: Mapping[str, Any], module: type) -> Iterator[None]:
    """Check a checkpoint before it is loaded; if that fails, name the objects that it does not hold.

    Args:
        path, trusted: as for `check_checkpoint`.   given: arguments of `module` that are given to the loading.

    Raises: ConfigurationError, also instead of the error of a loading that lacks objects.
    """
    check_checkpoint(path, trusted)
    try:
        yield
    except (RuntimeError, TypeError) as error:
        content = load_tensors(path, cure="load another checkpoint")
        if not (names := [name for name in content.get("objects", ()) if name not in given]):
            raise
        raise ConfigurationError(
            f"{path} does not hold {_named(names)}, which were made in Python: {_cure(names, module.__name__)}"
        ) from error


def _named(names: list[str]) -> str:
    return " and ".join(f"model.{name}" for name in names)


def _cure(names: list[str], module: str) -> str:
    again = ", ".join(f"{name}=..." for name in names)
    return f"load them with {module}.load_from_checkpoint(path, {again}), or train from a config, which names classes."


def check_checkpoint(path: Any, trusted: tuple[str, ...]) -> None:
    """Check that a checkpoint is a local, intact file, and that its hyperparameters may be imported.

    Raises: ConfigurationError.
    """
    if "://" in str(path):
        raise ConfigurationError(f"The checkpoint {path} is not a local file: download it and give its path.")
    content = load_tensors(path, cure="load another checkpoint")
    if not isinstance(content, dict) or not isinstance(content.get("state_dict"), dict):
        raise ConfigurationError(f"{path} is not a checkpoint: it has no weights under `state_dict`.")
    check_importable(content.get("hyper_parameters", {}), trusted)


def check_importable(hparams: Any, trusted: tuple[str, ...]) -> None:
    """Check that hyperparameters name nothing to import outside `MODEL_ALLOWED` and `trusted`.

    Raises: ConfigurationError.
    """
    if isinstance(hparams, Mapping):
        hparams = [value for key, value in hparams.items() if key != "_instantiator"]
    if isinstance(hparams, list | tuple):
        for value in hparams:
            check_importable(value, trusted)
    dotted = isinstance(hparams, str) and "." in hparams and all(part.isidentifier() for part in hparams.split("."))
    top = hparams.partition(".")[0] if dotted else ""
    if dotted and not may_import(hparams, trusted) and not (may_import(hparams, MODEL_ALLOWED) and is_own(hparams)):
        raise ConfigurationError(
            f"The checkpoint names {hparams}, which may not be imported: if you trust that code, add `--trust {top}`,"
            f" or in Python trusted=({top!r},)."
        )


def is_own(path: str) -> bool:
    """Return whether a dotted path below `MODEL_ALLOWED` names what is defined there, not what is imported there."""
    top, *parts = path.split(".")
    target: Any = import_module(top)
    for part in parts:
        if isinstance(target, ModuleType):
            with suppress(ModuleNotFoundError):
                target = import_module(f"{target.__name__}.{part}")
                continue
        target = getattr(target, part, None)
        if isinstance(target, ModuleType):
            return False
        if target is None:
            return True  # nothing to import: an error of its own
    return getattr(target, "__module__", path).split(".")[0] in ("modules", "datamodules", "torch")


def load_algorithm(path: str | Path, trusted: tuple[str, ...] = ()) -> Any:
    """Load an algorithm with its weights on the CPU, in eval mode; nothing in the file is executed.

    Args:
        path: of a checkpoint, or of a run's folder, for its best checkpoint, else its last.
        trusted: further packages that it may import.

    Raises: ConfigurationError if it is missing or damaged, or names code that is not trusted or no algorithm.
    """
    checkpoint = checkpoint_in(path)
    check_checkpoint(checkpoint, trusted)
    hparams = load_tensors(checkpoint, cure="load another checkpoint").get("hyper_parameters", {})
    kind = algorithm_class(hparams, checkpoint)
    return kind.load_from_checkpoint(checkpoint, trusted=trusted, map_location="cpu")


def algorithm_class(hparams: dict[str, Any], checkpoint: Path) -> Any:
    """Return the class of the algorithm that wrote a checkpoint.

    Raises: ConfigurationError if it cannot be imported, or is no algorithm.
    """
    path = str(hparams.get("_class_path", ""))
    module, _, name = path.rpartition(".")
    try:
        target = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"{checkpoint} was written by `{path}`, which cannot be imported ({error}): start where that file is."
        ) from error
    if not (isinstance(target, type) and issubclass(target, LightningModule)):
        raise ConfigurationError(f"{checkpoint} was written by `{path}`, which is no algorithm of Leyden.")
    return target


def _plain(value: Any, parameter: inspect.Parameter | None = None) -> Any:
    """Return the value as plain data; `parameter` is the one that it is given for."""
    if isinstance(value, PLAIN_TYPES):
        return value
    if isinstance(value, Mapping):
        return _all_or_nothing({str(key): _plain(child) for key, child in value.items()})
    if isinstance(value, list | tuple):
        children = [_plain(child) for child in value]
        return NotImplemented if any(child is NotImplemented for child in children) else type(value)(children)
    if isinstance(value, type) and parameter is not None and _takes_class(parameter.annotation):
        return class_path(value)
    if isinstance(value, functools.partial) and isinstance(value.func, type) and not value.args:
        return _class(value.func, value.keywords, parameter)
    return _class(value, {}, parameter) if isinstance(value, type) else NotImplemented


def _class(kind: type, arguments: Mapping[str, Any], parameter: inspect.Parameter | None) -> Any:
    """Return a class and its arguments, all of them if another class is the default."""
    plain: dict[str, Any] = {"class_path": class_path(kind)}
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
    """Return whether a parameter takes a class itself, such as an activation's, not an instance."""
    return any(get_origin(each) is type for each in (annotation, *get_args(annotation)))
