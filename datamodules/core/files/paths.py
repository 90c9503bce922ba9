"""Expand `~` and environment variables in paths given by the user."""

import os
import re

from datamodules.core.errors import ConfigurationError

VARIABLE = re.compile(r"\$(\w+|\{[^}]*\})")


def expand_path(path: str | os.PathLike[str]) -> str:
    """Expand `$VAR` and `${VAR}`, then a leading `~` or `~user`, as TensorBoard's logger does; idempotent.

    Raises:
        ConfigurationError: if a variable is not set or a user is unknown, unless a file has exactly this name.
    """
    written = os.fspath(path)
    expanded = os.path.expanduser(os.path.expandvars(written))
    if os.path.lexists(expanded):
        return expanded
    if unset := VARIABLE.search(expanded):
        raise ConfigurationError(
            f"The path `{written}` names `{unset[0]}`, which is not set: set it, or write the path in full."
        )
    if expanded.startswith("~"):
        raise ConfigurationError(
            f"The path `{written}` begins with `~`, but there is no such user: write the path in full."
        )
    return expanded
