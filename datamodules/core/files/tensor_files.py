"""Files that `torch.save` wrote: read without running code, and with their checksums verified."""

import zipfile
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from datamodules.core.errors import UsageError


def load_tensors(path: str | Path, *, cure: str, map_location: Any = "cpu", mmap: bool = False) -> Any:
    """Load tensors and plain values, on the CPU unless told otherwise; nothing in the file is ever executed.

    Torch writes a CRC-32 of every record and does not look at it when it loads: it is verified first, so that a file
    whose bits have changed is never read.

    Args:
        cure: what the user can do about a file that cannot be used, the end of the sentence.
        mmap: map the tensors into memory instead of reading them.

    Raises: UsageError if the file is missing, unreadable, damaged, or holds anything but tensors and plain values.
    """
    try:
        if zipfile.is_zipfile(path):  # else of the old format, or none at all: `torch.load` decides
            verify_checksums(path)
        return torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
    except FileNotFoundError:
        raise UsageError(f"There is no file {path}: {cure}.") from None
    except PermissionError:
        raise UsageError(f"{path} may not be read: change its permissions, or {cure}.") from None
    except Exception as error:  # a damaged file can make Torch raise anything
        if isinstance(error, UnpicklingError) and (zipfile.is_zipfile(path) or "Unsupported global" in str(error)):
            raise UsageError(
                f"{path} is refused: with weights_only nothing but tensors and plain values is loaded, it holds"
                f" something else, and that could run foreign code: {cure}."
            ) from None
        raise UsageError(f"{path} is damaged, or no file of tensors ({first_line(error)}): {cure}.") from None


def verify_checksums(path: str | Path) -> None:
    """Read a zip file, and raise BadZipFile if a record has another checksum than the file says."""
    with zipfile.ZipFile(path) as file:
        if (record := file.testzip()) is not None:
            raise zipfile.BadZipFile(f"its record {record} has another checksum")


def first_line(error: Exception) -> str:
    """Return the kind of an error and the first line of its text."""
    text = str(error).strip().split("\n")[0].split(" (1)")[0].rstrip(".")
    return f"{type(error).__name__}: {text[:120]}" if text else type(error).__name__
