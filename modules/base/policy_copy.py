"""Copies of a policy with their own weights."""

import copy
from typing import TypeVar

from torch import nn

from datamodules.core.errors import ConfigurationError

Module = TypeVar("Module", bound=nn.Module)


def copy_policy(module: Module) -> Module:
    """Return a copy with its own parameters, buffers and submodules; hooks and all other attributes are shared.

    Raises: ConfigurationError for networks that cannot be copied.
    """
    parts = {name: vars(module)[name] for name in ("_modules", "_parameters", "_buffers")}
    held = [child for part in module.modules() for name, child in vars(part).items() if name.endswith("_hooks")]
    shared = {id(hook): hook for hooks in held if isinstance(hooks, dict) for hook in hooks.values()}
    try:
        copied = copy.deepcopy(parts, shared)
    except Exception as error:
        raise ConfigurationError(
            f"data.policy_lag is 1, which needs a copy of {type(module).__name__}'s networks, but they cannot"
            f" be copied ({error}): set it to 0."
        ) from error
    policy_copy = copy.copy(module)
    vars(policy_copy).update(copied)
    return policy_copy
