"""Refuse `null` for settings that need a value, wherever a class is named; the parser itself lets null pass."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch import Trainer

from app.cli.error_messages import wrong_value
from datamodules.core.errors import UsageError
from datamodules.core.required_values import null_arguments

LINKED = ("model", "init_args", "spaces")
"""Set when the data is made."""


def check_required(settings: Namespace) -> None:
    """Refuse null where the class that takes the setting does not.

    Args:
        settings: of one verb, parsed: every class in them has been imported.

    Raises: UsageError.
    """
    for keys, hint in null_settings(settings):
        if keys != LINKED:
            written = [key for key in keys if key != "init_args"]
            raise UsageError(wrong_value(written, "null", hint, sys.argv[1:]))


def null_settings(settings: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield keys and type of every setting that is null and may not be, outermost first."""
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


def named(path: Any) -> Any:
    """Return the class or function of a dotted path whose module has been imported; None if there is none."""
    module, _, name = path.rpartition(".") if isinstance(path, str) else ("", "", "")
    found = getattr(sys.modules.get(module), name, None)
    return found if callable(found) else None
