"""Refuse `null` where a value is required, and classes where the argument has no type; the parser accepts both."""

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import Trainer

from app.class_paths import short_names
from app.cli.error_messages import wrong_value
from datamodules.core.arguments import null_arguments
from datamodules.core.errors import ConfigurationError

LINKED = ("model", "init_args", "spaces")
"""Setting that is linked from the data."""


def check_required(settings: Namespace) -> None:
    """Refuse null for settings that do not allow it.

    Args:
        settings: parsed settings of one verb, whose classes have been imported.

    Raises: ConfigurationError for such a setting, and for a class given for an argument without a type.
    """
    for keys, path in untyped_classes(settings):
        place, argument = ".".join(key for key in keys if key != "init_args"), keys[-1]
        raise ConfigurationError(
            f"`{place}` is {path}, but the argument `{argument}` has no type that says it takes a class: annotate it"
            f" in `__init__`, such as `{argument}: Callable[..., nn.Module] = MLP`."
        )
    for keys, hint in null_settings(settings):
        if keys != LINKED:
            written = [key for key in keys if key != "init_args"]
            raise ConfigurationError(wrong_value(written, "null", hint, sys.argv[1:]))


def null_settings(settings: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield keys and type of every setting that is null but may not be, outermost first."""
    if isinstance(settings, Sequence) and not isinstance(settings, str):
        for each in settings:
            yield from null_settings(each, keys)
    if not isinstance(settings, Namespace | Mapping):
        return
    known = settings if isinstance(settings, Mapping) else vars(settings)
    if keys == ("trainer",):
        yield from (((*keys, name), hint) for name, hint in null_arguments(Trainer, known))
    if made := named(known.get("class_path")):
        arguments = known.get("init_args") or {}
        given = arguments if isinstance(arguments, Mapping) else vars(arguments)
        yield from (((*keys, "init_args", name), hint) for name, hint in null_arguments(made, given))
    for key, value in known.items():
        yield from null_settings(value, (*keys, key))


def untyped_classes(settings: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield keys and class of every setting that is a class although its argument has no type."""
    if not isinstance(settings, Namespace | Mapping):
        return
    known = settings if isinstance(settings, Mapping) else vars(settings)
    if made := named(known.get("class_path")):
        arguments = known.get("init_args") or {}
        given = arguments if isinstance(arguments, Mapping) else vars(arguments)
        for name, parameter in inspect.signature(made).parameters.items():
            value: Any = given.get(name)
            path = value.get("class_path") if isinstance(value, Namespace | Mapping) else value
            if parameter.annotation is not parameter.empty:
                continue
            if type(value).__name__ == "NestedArg":  # the parser's, of an argument of the class
                yield (*keys, "init_args", name), f"given `{value.key}`"
            elif isinstance(path, str) and (path in short_names() or named(path) is not None):
                yield (*keys, "init_args", name), path
    for key, value in known.items():
        yield from untyped_classes(value, (*keys, key))


def named(path: Any) -> Any:
    """Return the class or function of a dotted path whose module has been imported; None if there is none."""
    module, _, name = path.rpartition(".") if isinstance(path, str) else ("", "", "")
    found = getattr(sys.modules.get(module), name, None)
    return found if callable(found) else None
