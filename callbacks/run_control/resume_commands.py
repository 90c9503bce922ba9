"""The commands that callbacks print: how to go on with a checkpoint."""

from pathlib import Path
from typing import Any

from lightning.pytorch import Trainer


def command(trainer: Trainer, verb: str, checkpoint: str | Path) -> str:
    """Return what runs a verb on a checkpoint of this run: a shell's command, or Python where a script began it.

    A callback that has a method `command` (the command line adds one) knows the shell's command.
    """
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if hasattr(callback, "command"):
            said: Any = callback.command(verb, str(checkpoint))
            return str(said)
    return f"trainer.{verb}(model, datamodule=data, ckpt_path={str(checkpoint)!r}, weights_only=True)"
