"""Copies of a module that act by weights of their own."""

import copy
from typing import TypeVar

from torch import nn

from datamodules.core.errors import UsageError

Module = TypeVar("Module", bound=nn.Module)


def twin_of(module: Module) -> Module:
    """A module with parameters, buffers and networks of its own, equal at first, that shares hooks and all else.

    Raises: UsageError for networks that cannot be copied.
    """
    own = {name: vars(module)[name] for name in ("_modules", "_parameters", "_buffers")}
    held = [child for part in module.modules() for name, child in vars(part).items() if name.endswith("_hooks")]
    shared = {id(hook): hook for hooks in held if isinstance(hooks, dict) for hook in hooks.values()}
    try:
        copied = copy.deepcopy(own, shared)
    except Exception as error:
        raise UsageError(
            f"data.staleness is 1, for which {type(module).__name__} acts by a copy of its networks, and they cannot be"
            f" copied ({error}): set it to 0."
        ) from error
    twin = copy.copy(module)
    vars(twin).update(copied)
    return twin
