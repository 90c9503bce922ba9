"""Expand `~` and environment variables in paths given by the user, and check that folders can be written."""

import os
import re
from pathlib import Path
from tempfile import TemporaryFile

from datamodules.core.errors import ConfigurationError

VARIABLE = re.compile(r"\$(\w+|\{[^}]*\})")


def expand_path(path: str | os.PathLike[str]) -> str:
    """Expand `$VAR` and `${VAR}`, then a leading `~` or `~user`, as TensorBoard's logger does; idempotent.

    Raises:
        ConfigurationError: if a variable is not set or a user is unknown, unless a file has exactly this name, and for
            a NUL character.
    """
    written = os.fspath(path)
    if "\0" in written:
        raise ConfigurationError(f"The path {written!r} has a NUL character: remove it.")
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


def require_writable(folder: Path, setting: str = "save_dir") -> None:
    """Check, without leaving anything behind, that a folder exists or can be created, and that files can be made in it.

    Permissions do not tell: a superuser has all of them, also in `/proc` and on a read-only disk. A file is therefore
    created and removed in the folder, or in its nearest parent that exists.

    Args:
        folder: folder that a run is to write.   setting: the setting that chooses it, in messages.

    Raises:
        ConfigurationError: if it cannot.
    """
    try:
        existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
        if existing.is_dir():
            with TemporaryFile(dir=existing):
                return
    except OSError as error:
        raise ConfigurationError(
            f"The folder {folder} cannot be written ({error.strerror}): choose another {setting}."
        ) from None
    raise ConfigurationError(
        f"The folder {folder} cannot be created, because {existing} is a file: choose another {setting}."
    )
