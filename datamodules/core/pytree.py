"""Tensors in tuples and dictionaries, one inside the other."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from torch import Tensor

Nested = TypeVar("Nested")


def mapped(function: Callable[[Tensor], Tensor], value: Nested) -> Nested:
    """The same function on every tensor in nested named tuples and dictionaries; whatever else is there stays."""
    if isinstance(value, Tensor):
        return cast(Nested, function(value))
    if isinstance(value, dict):
        return cast(Nested, {name: mapped(function, child) for name, child in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(mapped(function, child) for child in value))
    return value


def tensors(value: Any) -> list[Tensor]:
    """All tensors in nested tuples and dictionaries; a dictionary's by key, since its order may change."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    return [tensor for child in value for tensor in tensors(child)] if isinstance(value, tuple | list) else []
