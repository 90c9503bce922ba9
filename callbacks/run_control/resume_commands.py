"""Commands printed by callbacks to continue from a checkpoint."""

from pathlib import Path
from typing import Any, cast

from lightning.pytorch import Trainer


def command(trainer: Trainer, verb: str, checkpoint: str | Path) -> str:
    """Return the command that runs a verb on a checkpoint of this run: shell, or Python if a script started it.

    A callback with a method `command` (the command line adds one) provides the shell command.
    """
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        if hasattr(callback, "command"):
            return str(cast(Any, callback).command(verb, str(checkpoint)))
    return f"trainer.{verb}(model, datamodule=data, ckpt_path={str(checkpoint)!r}, weights_only=True)"
