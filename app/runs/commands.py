"""Settings saved in the run folder, and commands that continue a run."""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.cli import SaveConfigCallback
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from app.runs.run_folder import keep_earlier, version_name


class SaveConfig(SaveConfigCallback):
    """Save the settings as `config.yaml` in the run folder, whatever the logger; an earlier file is renamed.

    Attributes:
        path: path of the saved settings; None before they are saved, and on other ranks than 0.
    """

    path: Path | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Save the settings once, on rank 0."""
        if self.path is not None or not trainer.is_global_zero:
            return
        path = settings_folder(trainer) / "config.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_name(f".config.{os.getpid()}.yaml")
        try:
            self.parser.save(self.config, str(written), skip_none=False, overwrite=True, multifile=False)
            if path.is_file() and path.read_bytes() != written.read_bytes():
                keep_earlier(path)
            os.replace(written, path)
        finally:
            written.unlink(missing_ok=True)
        self.path = path


class Commands(Callback):
    """Provide the command lines that continue a run, ready to be pasted.

    Args:
        words: this run's command line after the verb, used if no settings are saved.
        trusted: the modules after `--trust`.
    """

    def __init__(self, words: Sequence[str], trusted: Sequence[str]):
        self.words, self.trusted = without_checkpoint(words), list(trusted)
        self._saved: SaveConfig | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Find the callback that saves the settings."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        self._saved = next((each for each in callbacks if isinstance(each, SaveConfig)), None)

    def command(self, verb: str, checkpoint: str) -> str:
        """Return the command that runs a verb on a checkpoint with this run's settings, quoted for a POSIX shell."""
        path = None if self._saved is None else self._saved.path
        settings = self.words if path is None else ["--config", str(path)]
        trust = [word for name in self.trusted for word in ("--trust", name)]
        return shlex.join([python(), "-m", "app", verb, *settings, *trust, "--ckpt_path", checkpoint])


def python() -> str:
    """Return `python` if that is the current interpreter, else its path."""
    found, here = shutil.which("python"), Path(sys.executable)
    if found and Path(found).parent == here.parent and Path(found).resolve() == here.resolve():
        return "python"
    return str(here.relative_to(Path.cwd()) if here.is_relative_to(Path.cwd()) else here)


def without_checkpoint(words: Sequence[str]) -> list[str]:
    """Return the words of a command line without `--ckpt_path`."""
    kept, rest = [], iter(words)
    for word in rest:
        if word == "--ckpt_path":
            next(rest, None)
        elif not word.startswith("--ckpt_path="):
            kept.append(word)
    return kept


def settings_folder(trainer: Trainer) -> Path:
    """Return the folder of a run's settings on rank 0: its logger's, or that of the checkpoints without one."""
    logger: Any = trainer.loggers[0] if trainer.loggers else None
    if logger is None:
        return Path(trainer.default_root_dir)
    if isinstance(logger, TensorBoardLogger | CSVLogger):
        return Path(logger.log_dir)
    return Path(logger.save_dir or trainer.default_root_dir) / str(logger.name) / version_name(logger.version)
