"""Tensors in tuples and dictionaries, one inside the other."""

from collections.abc import Callable
from typing import TypeVar, cast

from torch import Tensor

Nested = TypeVar("Nested")


def mapped(function: Callable[[Tensor], Tensor], value: Nested) -> Nested:
    """The same function on every tensor in nested named tuples and dictionaries."""
    if isinstance(value, Tensor):
        return cast(Nested, function(value))
    if isinstance(value, dict):
        return cast(Nested, {name: mapped(function, child) for name, child in value.items()})
    assert isinstance(value, tuple)
    return type(value)(*(mapped(function, child) for child in value))
