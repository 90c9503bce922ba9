"""Run folders: expand their paths, reserve them for one run, and remove the files of a failed one."""

import os
import shutil
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from typing import Any

from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from datamodules.core.errors import ConfigurationError
from datamodules.core.files.paths import expand_path, require_writable

try:
    import fcntl
except ImportError:  # not on Windows, where a second run in a named folder goes unnoticed
    fcntl = None  # type: ignore[assignment]

PATH_SETTINGS = {"default_root_dir", "dir", "dirpath", "offline_directory", "save_dir", "storage_folder", "sub_dir"}
"""Settings of the Trainer, its loggers and callbacks, and of the data, that name an output folder."""

FileLogger = TensorBoardLogger | CSVLogger
"""Loggers that create version folders."""

_locks: set[int] = set()


def expand_settings(settings: Namespace) -> None:
    """Expand `~` and `$VAR` in every setting that names an output folder, in place.

    Raises:
        ConfigurationError: for a variable that is not set, and for a `sub_dir` outside the run folder.
    """
    for holder, key in _path_settings(settings):
        value = expand_path(getattr(holder, key))
        if key == "sub_dir" and (os.path.isabs(value) or ".." in PurePath(value).parts):
            raise ConfigurationError(f"The logger's sub_dir is `{value}`; it must be a relative path without `..`.")
        setattr(holder, key, value)


def require_writable_settings(settings: Namespace) -> None:
    """Check every folder that a setting names, before a run spends time on what it cannot save.

    Raises:
        ConfigurationError: for a folder that cannot be created or written.
    """
    for holder, key in _path_settings(settings):
        folder = getattr(holder, key)
        if key not in ("default_root_dir", "sub_dir") and folder and "://" not in str(folder):
            require_writable(Path(folder), key)


def _path_settings(value: Any) -> Iterator[tuple[Namespace, str]]:
    if isinstance(value, list):
        for item in value:
            yield from _path_settings(item)
    elif isinstance(value, Namespace):
        for key, child in vars(value).items():
            if key in PATH_SETTINGS and isinstance(child, str | os.PathLike):
                yield value, key
            else:
                yield from _path_settings(child)


class RunFolders:
    """Folders of one run.

    A version folder is reserved by an `mkdir` that fails if it exists, so that two runs never share one; a folder that
    is named explicitly, or that has no versions, may exist, but is locked while a `fit` runs in it. Only rank 0
    reserves folders: Lightning sends its folder to the other ranks.

    Args:
        trainer: Trainer whose loggers, or `default_root_dir` without loggers, determine the folders.
        verb: `fit`, or another one, which only adds files to a named folder.
        resumed: checkpoint that the run continues.

    Raises: ConfigurationError if a folder cannot be created or belongs to another run; folders created so far are
    removed.
    """

    def __init__(self, trainer: Trainer, verb: str, resumed: Path | None = None):
        self._fits, self._resumed = verb == "fit", resumed
        self._made: list[tuple[Path, Path]] = []
        self._made_above: list[Path] = []
        self._held: list[int] = []
        if not trainer.is_global_zero or trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        try:
            self._claim(trainer)
        except (ConfigurationError, OSError) as error:
            self.remove()
            if isinstance(error, OSError):
                raise ConfigurationError(f"The run folder cannot be created: {error}.") from None
            raise

    def _claim(self, trainer: Trainer) -> None:
        numbers: dict[Path, int] = {}
        for logger in trainer.loggers:
            if not isinstance(logger, FileLogger) or "://" in logger.root_dir:
                continue
            root = Path(logger.root_dir)
            _require_inside(logger)
            if logger._version is None and root in numbers:
                logger._version = numbers[root]  # two loggers of one run share its folder
                continue
            if logger._version is None:
                logger._version = numbers[root] = self._next_version(root, int(logger.version))
                self._made.append((root / version_name(logger._version), Path(logger.log_dir)))
            else:
                self._enter(root, root / version_name(logger._version), Path(logger.log_dir))
            self._hold(root / version_name(logger._version), trainer)
            if isinstance(logger, CSVLogger):
                keep_earlier(Path(logger.log_dir) / "metrics.csv")  # which the logger would remove
        if not trainer.loggers and self._fits and trainer.checkpoint_callbacks:
            folder = Path(trainer.default_root_dir)
            self._enter(folder, folder, folder)
            self._hold(folder, trainer)

    def _next_version(self, root: Path, number: int) -> int:
        while True:
            self._make_experiment(root)
            try:
                (root / version_name(number)).mkdir()
                return number
            except FileExistsError:
                number += 1
            except FileNotFoundError:  # another run, which failed, has just removed the experiment's folder
                continue

    def _enter(self, root: Path, folder: Path, log_dir: Path) -> None:
        if folder != root:
            self._make_experiment(root)
        with suppress(FileExistsError):
            folder.mkdir(parents=folder == root)
            self._made.append((folder, log_dir))
        _require_folder(folder)

    def _make_experiment(self, root: Path) -> None:
        with suppress(FileExistsError):
            root.mkdir(parents=True)
            self._made_above.append(root)
        _require_folder(root)

    def _hold(self, folder: Path, trainer: Trainer) -> None:
        """Lock a folder, and refuse one with files that this run would replace."""
        if not self._fits:
            return
        if (lock := lock_folder(folder)) is not None:
            self._held.append(lock)
        saved = folder / "checkpoints"
        goes_on = self._resumed is not None and self._resumed.resolve().parent == saved.resolve()
        replaces = any(
            each.dirpath is None and each.save_last and not each._enable_version_counter
            for each in trainer.checkpoint_callbacks
            if isinstance(each, ModelCheckpoint)
        )
        if replaces and not goes_on and next(saved.glob("*.ckpt"), None) is not None:
            raise ConfigurationError(
                f"The run folder {folder} holds checkpoints of another run, which this run would replace: choose"
                " another version or save_dir, or resume that run with --ckpt_path last."
            )

    def release(self) -> None:
        """Unlock the folders."""
        while self._held:
            lock = self._held.pop()
            _locks.discard(lock)
            os.close(lock)

    def remove(self) -> None:
        """Remove this run's files in the folders that it created, unless they hold a checkpoint; unlock all."""
        for folder, log_dir in self._made:
            if next(folder.rglob("*.ckpt"), None) is None:
                remove_written(folder, log_dir)
        for folder in reversed(self._made_above):
            with suppress(OSError):
                folder.rmdir()
        self._made.clear()
        self._made_above.clear()
        self.release()


def version_name(version: int | str) -> str:
    """Return the name of a version's folder, as in Lightning's loggers."""
    return version if isinstance(version, str) else f"version_{version}"


def _require_inside(logger: FileLogger) -> None:
    """Refuse a logger whose folder is not below its `save_dir`."""
    version = logger._version if isinstance(logger._version, str) else "version"
    below = os.path.join(logger.name, version, getattr(logger, "sub_dir", None) or "")
    if os.path.isabs(below) or ".." in Path(below).parts:
        raise ConfigurationError(
            f"The logger's folder `{below}` leaves its save_dir: choose names without `/` and `..`."
        )


def _require_folder(path: Path) -> None:
    if path.is_file() or (path.is_symlink() and not path.exists()):
        raise ConfigurationError(
            f"The run folder {path} cannot be created, because a file or a broken link has that name."
        )


def lock_folder(folder: Path) -> int | None:
    """Lock a folder for this process, without leaving a file; return None if the system does not support it.

    Raises:
        ConfigurationError: if another running process has locked it.
    """
    if fcntl is None:
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise ConfigurationError(
            f"The run folder {folder} is in use by another run: choose another version or save_dir."
        ) from None
    except OSError:  # a network file system without locks
        os.close(descriptor)
        return None
    _locks.add(descriptor)
    return descriptor


def _close_in_child() -> None:
    """Close the locks in a forked child: a worker that outlives the parent must not hold them."""
    while _locks:
        os.close(_locks.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


def remove_written(folder: Path, log_dir: Path) -> None:
    """Remove this process's files in a run folder, down to its `log_dir`, and folders that become empty."""
    between = [path for path in (log_dir, *log_dir.parents) if path.is_relative_to(folder)]
    for path in (folder / "checkpoints", *between):
        for name in ("config.yaml", "hparams.yaml", "metrics.csv", f"events.out.tfevents.*.{os.getpid()}.*"):
            for written in path.glob(name):
                written.unlink(missing_ok=True)
        with suppress(OSError):
            path.rmdir()


def keep_earlier(path: Path) -> None:
    """Rename a file of an earlier run in the same folder: `config.yaml` becomes `config-1.yaml`."""
    if not path.is_file():
        return
    number = 1
    while (free := path.with_stem(f"{path.stem}-{number}")).exists():
        number += 1
    shutil.move(path, free)
