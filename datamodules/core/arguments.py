"""Check arguments by the type hints of the class or function that takes them."""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from datamodules.core.errors import ConfigurationError, suggest_names

TYPE_NAMES: dict[Any, str] = {
    **{int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: "null"},
    **{list: "a list", tuple: "a list", Sequence: "a list", dict: "a mapping", Mapping: "a mapping"},
}
"""Types in messages; those without an entry by the name of their class."""


class Signature(NamedTuple):
    """Arguments of a class or function.

    hints: their types by name, Any without one.   defaults: by name.   required: names of those that must be given.
    takes_kwargs: whether it takes others too, which its signature does not name.
    """

    hints: dict[str, Any]
    defaults: dict[str, Any]
    required: list[str]
    takes_kwargs: bool


def signature(target: Callable[..., Any]) -> Signature:
    """Return the arguments of a class or function.

    A class with `**kwargs` has the arguments of its bases too, and takes others; so does what has no signature, such as
    a class in C. A `functools.partial` gives defaults.
    """
    bound = target if isinstance(target, partial) else partial(target)
    target, first = bound.func, len(bound.args)
    classes = target.__mro__[:-1] if isinstance(target, type) else ()
    hints: dict[str, Any] = {}
    defaults: dict[str, Any] = dict(bound.keywords)
    required: list[str] | None = None
    for function in [vars(each)["__init__"] for each in classes if "__init__" in vars(each)] or [target]:
        try:
            parameters = list(inspect.signature(function).parameters.values())[first + (function is not target) :]
        except (TypeError, ValueError):
            return Signature(hints, defaults, required or [], takes_kwargs=True)
        known = _hints(function)
        named = [each for each in parameters if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
        hints = {each.name: known.get(each.name, Any) for each in named} | hints
        defaults = {each.name: each.default for each in named if each.default is not each.empty} | defaults
        more = any(each.kind is each.VAR_KEYWORD for each in parameters)
        takes_kwargs, required = (more, [*hints]) if required is None else (True, required)
        if not more:
            break
    return Signature(hints, defaults, [name for name in required or [] if name not in defaults], takes_kwargs)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (TypeError, ValueError, NameError, AttributeError):
        return {}  # they name something that cannot be found


def null_arguments(target: Callable[..., Any], arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and type of every argument that is None although neither its type nor its default allows it.

    Args:
        target: a class or a function.
        arguments: values by name; names that are not in the signature are ignored.
    """
    hints, defaults, *_ = signature(target)
    for name, hint in hints.items():
        is_null = name in arguments and arguments[name] is None
        if is_null and defaults.get(name, hint) is not None and not allows_none(hint):
            yield name, hint


def allows_none(hint: Any) -> bool:
    """Return whether a value of this type may be None."""
    return matches_type(None, hint)


def require_values(part: str, target: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """Check that no required argument is None.

    Raises:
        ConfigurationError: naming the argument as `part.name`.
    """
    for name, hint in null_arguments(target, arguments):
        raise ConfigurationError(f"{part}.{name} is null, but it must be {TYPE_NAMES.get(hint, 'given')}.")


def check_names(target: Callable[..., Any], names: Iterable[str], owner: str, where: str = "") -> None:
    """Check that a class or function takes arguments of these names.

    Args:
        target: the class or function.   names: of the arguments.   owner: its name in messages.
        where: prefix of arguments in messages, such as `env_kwargs.`.

    Raises: ConfigurationError for another name, with the names that are similar, or else all.
    """
    hints, defaults, _, takes_kwargs = signature(target)
    known = hints | defaults
    for name in names:
        if name not in known and not takes_kwargs:
            like = suggest_names(name, known)
            advice = f"did you mean {like}?" if like else f"it takes {', '.join(known) or 'no arguments'}."
            raise ConfigurationError(f"{owner} takes no {where}{name}: {advice}")


def check_arguments(
    target: Callable[..., Any],
    arguments: Mapping[str, Any],
    owner: str,
    where: str = "",
    finite: bool = True,
    scalars_only: bool = False,
) -> None:
    """Check names and types of the arguments of a class or function, and that none is missing.

    Type hints are those of `matches_type`. An argument may also be None if that is its default.

    Args:
        target: the class or function.   arguments: values by name.   owner, where: as for `check_names`.
        finite: refuse infinities and NaN.
        scalars_only: check types of numbers, bools and texts only, and allow None: for classes whose other type hints
            are not exact.

    Raises: ConfigurationError for the first argument that is wrong, with its name, its value and its type.
    """
    check_names(target, arguments, owner, where)
    hints, defaults, required, _ = signature(target)
    for name, value in arguments.items():
        hint = hints.get(name, Any)
        if scalars_only and (value is None or not is_scalar(hint)):
            continue
        allowed = matches_type(value, hint) or (value is None and defaults.get(name, hint) is None)
        if not allowed or (finite and not is_finite(value)):
            shown = "null" if value is None else f"{value!r:.80}"
            raise ConfigurationError(f"{where}{name} of {owner} is {shown}; it must be {describe_type(hint)}.")
    for name in required:
        if name not in arguments:
            raise ConfigurationError(f"{owner} needs {where}{name}, {describe_type(hints[name])}: set it.")


def check_ranges(owner: str, *rules: tuple[str, Any, bool, str]) -> None:
    """Check that values of arguments are allowed.

    Args:
        owner: class or function that takes them, its name in messages.
        rules: name and value of an argument, whether the value is allowed, and the allowed values in words.

    Raises: ConfigurationError for the first rule that is broken, which alone is named.
    """
    for name, value, is_allowed, allowed in rules:
        if not is_allowed:
            raise ConfigurationError(f"{owner} has {name} {value}; choose {allowed}.")


def matches_type(value: Any, hint: Any) -> bool:
    """Return whether a value, as a configuration file or Python gives it, fits a type hint.

    A bool is not a number, a whole number is also a float, and a list is also a tuple or a Sequence.
    Of other generic types only the class is compared; a hint that is no type, such as a TypeVar, fits everything.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return matches_type(value, parts[0])
    if origin in (Union, UnionType):
        return any(matches_type(value, part) for part in parts)
    if origin is Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    kind = origin or hint
    if kind is float:
        return isinstance(value, Real) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, Integral) and not isinstance(value, bool)
    if kind is bool:
        return isinstance(value, bool | np.bool_)
    if kind in (list, tuple, Sequence):
        return isinstance(value, list | tuple) and _elements_match(value, kind, parts)
    if kind in (dict, Mapping):
        of_key, of_value = parts or (Any, Any)
        return isinstance(value, Mapping) and all(
            matches_type(key, of_key) and matches_type(each, of_value) for key, each in value.items()
        )
    if kind in (Any, object) or not isinstance(kind, type):
        return True
    if is_typeddict(kind):
        return isinstance(value, Mapping)
    if getattr(kind, "_is_protocol", False):
        return value is not None
    return isinstance(value, kind)


def _elements_match(value: Sequence[Any], kind: Any, parts: tuple[Any, ...]) -> bool:
    if kind is tuple and parts and Ellipsis not in parts:
        return len(value) == len(parts) and all(map(matches_type, value, parts))
    return all(matches_type(each, parts[0]) for each in value) if parts else True


def is_finite(value: Any) -> bool:
    """Return whether a number can be a finite float, and all numbers in lists and mappings can."""
    if isinstance(value, list | tuple):
        return all(map(is_finite, value))
    if isinstance(value, Mapping):
        return all(map(is_finite, value.values()))
    try:
        return not isinstance(value, Real) or math.isfinite(value)
    except OverflowError:
        return False


def is_scalar(hint: Any) -> bool:
    """Return whether values of a type are numbers, bools or texts, or None beside them."""
    if get_origin(hint) in (Union, UnionType):
        return all(part is NoneType or is_scalar(part) for part in get_args(hint))
    return hint in (bool, int, float, str)


def describe_type(hint: Any) -> str:
    """Return a type hint in words: `a whole number or null`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return describe_type(parts[0])
    if origin in (Union, UnionType):
        return " or ".join(map(describe_type, parts))
    if origin is Literal:
        return " or ".join("null" if part is None else str(part) for part in parts)
    kind = origin or hint
    word = "a finite number" if kind is float else TYPE_NAMES.get(kind) or str(getattr(kind, "__name__", kind))
    inner = [describe_type(part) for part in parts if part is not Ellipsis]
    if kind in (dict, Mapping):
        return f"{word} of {' to '.join(inner)}" if inner else word
    if kind is tuple and Ellipsis not in parts and len(inner) > 1:
        return f"{word} of {len(inner)}: {', '.join(inner)}"
    return f"{word}, each {inner[0]}" if kind in (list, tuple, Sequence) and inner else word
