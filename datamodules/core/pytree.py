"""Map over and list the tensors in nested tuples and dictionaries, and name the parts of an observation."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from torch import Tensor

Nested = TypeVar("Nested")
Value = TypeVar("Value")


def tree_map(function: Callable[..., Tensor], value: Nested, *others: Nested) -> Nested:
    """Apply a function to every tensor in nested named tuples and dictionaries; other values are kept.

    Args:
        others: values of the same structure, whose tensors are the function's further arguments.
    """
    if isinstance(value, Tensor):
        return cast(Nested, function(value, *others))
    if isinstance(value, dict):
        rest = cast(Any, others)
        children = {name: tree_map(function, child, *(other[name] for other in rest)) for name, child in value.items()}
        return cast(Nested, children)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(tree_map(function, *parts) for parts in zip(value, *cast(Any, others), strict=True)))
    return value


def tree_leaves(value: Any) -> list[Tensor]:
    """Return all tensors in nested tuples and dictionaries; those of a dictionary sorted by key."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    return [tensor for child in value for tensor in tree_leaves(child)] if isinstance(value, tuple | list) else []


def tree_unbind(value: Nested) -> list[Nested]:
    """Return the slices of a tensor, or of all tensors in nested tuples and dictionaries, along the first dimension."""
    if isinstance(value, Tensor):
        return cast(list[Nested], value.unbind())
    number = len(tree_leaves(value)[0])
    return [tree_map(lambda leaf, place=place: leaf[place], value) for place in range(number)]


def copy_tree_(target: Nested, source: Nested) -> None:
    """Copy every tensor of `source` into that of `target` at the same place."""
    if isinstance(target, dict):
        for name, part in target.items():
            part.copy_(cast(Any, source)[name])
    else:
        cast(Any, target).copy_(source)


def add_prefix(prefix: str, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values with a prefix added to their names."""
    return {prefix + name: value for name, value in values.items()}


def strip_prefix(prefix: str, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values whose names have a prefix, without the prefix."""
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def name_parts(name: str, value: Value | dict[str, Value]) -> dict[str, Value]:
    """Return the parts of an observation as `NAME/PART`, or the only one as `NAME`."""
    return add_prefix(f"{name}/", value) if isinstance(value, dict) else {name: value}


def join_parts(name: str, columns: Mapping[str, Value]) -> Value | dict[str, Value]:
    """Return the observation that `name_parts` has named among other columns."""
    if name in columns:
        return columns[name]
    return strip_prefix(name + "/", columns)
