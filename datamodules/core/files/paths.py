"""Paths as users write them: `~` and `$VAR`, expanded in one place for whatever is read or written there."""

import os
import re

from datamodules.core.errors import UsageError

VARIABLE = re.compile(r"\$(\w+|\{[^}]*\})")


def expand_path(path: str | os.PathLike[str]) -> str:
    """Expand `$VAR` and `${VAR}`, then a leading `~` or `~user`, as TensorBoard's logger does; expanding twice is safe.

    Raises:
        UsageError: for a variable that is not set and a user that is unknown, unless a file has that very name.
    """
    written = os.fspath(path)
    expanded = os.path.expanduser(os.path.expandvars(written))
    if os.path.lexists(expanded):
        return expanded
    if unset := VARIABLE.search(expanded):
        raise UsageError(f"The path `{written}` names `{unset[0]}`, which is not set: set it, or write the path out.")
    if expanded.startswith("~"):
        raise UsageError(f"The path `{written}` begins with `~`, but there is no such home: write the path out.")
    return expanded
