"""Check for arguments that are None although their type does not allow it."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from datamodules.core.errors import ConfigurationError

WORDS = {int: "a whole number", float: "a number", bool: "true or false"}


def null_arguments(made: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and type of every argument that is None although neither its type nor its default allows it.

    Args:
        made: a class or a function; a class's `**kwargs` are resolved through its bases.
        given: arguments by name; names that are not in the signature are ignored.
    """
    classes = made.__mro__ if isinstance(made, type) else ()
    for function in [vars(each)["__init__"] for each in classes if "__init__" in vars(each)] or [made]:
        try:
            parameters, hints = inspect.signature(function).parameters, get_type_hints(function, include_extras=True)
        except (TypeError, ValueError, NameError, AttributeError):
            return  # no signature, or its type hints cannot be resolved
        for name, parameter in parameters.items():
            absent = given.get(name, parameter) is None and parameter.default is not None
            if absent and not allows_none(hints.get(name, Any)):
                yield name, hints[name]
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            return
        given = {name: value for name, value in given.items() if name not in parameters}


def allows_none(hint: Any) -> bool:
    """Return whether a value of this type may be None."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return allows_none(arguments[0])
    if origin in (Union, UnionType):
        return any(map(allows_none, arguments))
    if origin is Literal:
        return None in arguments
    return hint in (Any, object, NoneType) or not (origin or isinstance(hint, type))


def require_values(part: str, made: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Check that no required argument is None.

    Raises:
        ConfigurationError: naming the argument as `part.name`.
    """
    for name, hint in null_arguments(made, given):
        raise ConfigurationError(f"{part}.{name} is null, but it must be {WORDS.get(hint, 'given')}.")
