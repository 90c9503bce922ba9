"""Write files atomically."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import torch

from datamodules.core.errors import UnwritableFileError

try:
    import fcntl
except ImportError:  # Windows, which removes no file that is open
    fcntl = None  # type: ignore[assignment]

TEMPORARY = re.compile(r"\..+\.\d+\.unfinished")
"""Name of a temporary file: `.NAME.PROCESS.unfinished`."""


@contextmanager
def atomic_write(path: Path, before_replace: Callable[[Path], None] | None = None) -> Iterator[BinaryIO]:
    """Yield a binary file to write, which replaces `path` atomically when the block ends.

    It is written beside its destination, flushed to the disk and renamed. If the block fails, the old file at `path` is
    unchanged and the new file is removed.

    Args:
        before_replace: called with the complete temporary file before it replaces `path`.

    Raises: UnwritableFileError, for example on a full disk or if the folder is read-only.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file, _locked(unfinished):
            yield file
            file.flush()
            os.fsync(file.fileno())
            file.close()
            if before_replace is not None:
                before_replace(unfinished)
            os.replace(unfinished, path)
    except OSError as error:
        if error.errno is None:
            raise
        raise UnwritableFileError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)


class _Sink:
    """Binary file for `torch.save` that stores the OSError of a write, which `torch.save` hides."""

    def __init__(self, file: BinaryIO):
        self.file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write, and store an error."""
        try:
            return self.file.write(data)
        except OSError as error:
            self.error = error
            raise

    def flush(self) -> None:
        """Flush the file."""
        if self.error is None:
            self.file.flush()


def save_tensors(content: Any, path: Path, before_replace: Callable[[Path], None] | None = None) -> None:
    """Replace `path` atomically by the `torch.save` of `content`; `before_replace` as in `atomic_write`.

    Raises: UnwritableFileError, for example on a full disk.
    """
    with atomic_write(path, before_replace) as file:
        sink = _Sink(file)
        try:
            torch.save(content, sink)  # type: ignore[arg-type]
        except Exception:
            if sink.error is not None:
                raise sink.error from None
            raise


def sweep_unfinished(folder: Path) -> None:
    """Remove temporary files of `atomic_write` that killed processes left in a folder.

    Files of running processes are locked and kept.
    """
    for path in [path for path in folder.glob(".*.unfinished") if TEMPORARY.fullmatch(path.name)]:
        with suppress(OSError), _locked(path, wait=False):
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable across a power failure, if the system supports it."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(path: Path, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a file, which the system releases when the process ends, however it ends.

    Raises: OSError if another process holds it and `wait` is False.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if wait:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
