"""Map over and list the tensors in nested tuples and dictionaries."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from torch import Tensor

Nested = TypeVar("Nested")


def tree_map(function: Callable[[Tensor], Tensor], value: Nested) -> Nested:
    """Apply a function to every tensor in nested named tuples and dictionaries; other values are kept."""
    if isinstance(value, Tensor):
        return cast(Nested, function(value))
    if isinstance(value, dict):
        return cast(Nested, {name: tree_map(function, child) for name, child in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(tree_map(function, child) for child in value))
    return value


def tree_leaves(value: Any) -> list[Tensor]:
    """Return all tensors in nested tuples and dictionaries; those of a dictionary sorted by key."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    return [tensor for child in value for tensor in tree_leaves(child)] if isinstance(value, tuple | list) else []
