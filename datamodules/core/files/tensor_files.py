"""Read files written by `torch.save`, without executing code and with verified checksums."""

import re
import textwrap
import zipfile
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from datamodules.core.errors import ConfigurationError

SENTENCE_END = re.compile(r"\n|(?<=[.!?])\s+(?=[A-Z])| \(1\)")
"""End of the first sentence of an error's message."""

LONGEST_CAUSE = 200
"""Most characters of an error's text in a message."""


def load_tensors(path: str | Path, *, cure: str, map_location: Any = "cpu", mmap: bool = False) -> Any:
    """Load tensors and plain values, on the CPU by default, without executing code from the file.

    `torch.save` writes a CRC-32 of every record and `torch.load` ignores it: it is verified first, so that a corrupted
    file is rejected.

    Args:
        cure: what the user can do if the file cannot be used; the end of the error message.
        mmap: map the tensors into memory instead of reading them.

    Raises: ConfigurationError if the file is missing, unreadable, damaged, or holds anything but tensors and plain
        values.
    """
    try:
        if zipfile.is_zipfile(path):  # else the legacy format or an invalid file: `torch.load` decides
            verify_checksums(path)
        return torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
    except FileNotFoundError:
        raise ConfigurationError(f"There is no file {path}: {cure}.") from None
    except PermissionError:
        raise ConfigurationError(f"{path} may not be read: change its permissions, or {cure}.") from None
    except Exception as error:  # a damaged file can make Torch raise anything
        if isinstance(error, UnpicklingError) and (zipfile.is_zipfile(path) or "Unsupported global" in str(error)):
            raise ConfigurationError(
                f"{path} is refused: with weights_only only tensors and plain values are loaded, and it contains"
                f" other objects, which could execute code: {cure}."
            ) from None
        cause = "" if isinstance(error, UnpicklingError) else f" ({first_line(error)})"  # Torch's names no cause
        raise ConfigurationError(
            f"{path} is damaged, or not a file of tensors such as a checkpoint{cause}: {cure}."
        ) from None


def verify_checksums(path: str | Path) -> None:
    """Read a zip file; raise BadZipFile if a record does not match its checksum."""
    with zipfile.ZipFile(path) as file:
        if (record := file.testzip()) is not None:
            raise zipfile.BadZipFile(f"its record {record} has another checksum")


def first_line(error: Exception) -> str:
    """Return the type of an error and the first line of its message, up to the end of its first sentence.

    A text longer than `LONGEST_CAUSE` is cut between two words.
    """
    text = SENTENCE_END.split(str(error).strip())[0].rstrip(".")
    text = textwrap.shorten(text, LONGEST_CAUSE, placeholder=" ...", break_on_hyphens=False)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
