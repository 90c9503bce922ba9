"""Access to TensorBoard for callbacks that log images."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.trainer.states import TrainerFn


def tensorboard_writers(trainer: Trainer) -> list[Any]:
    """Return this process's TensorBoard writers during `fit`; empty on other ranks and in other verbs."""
    if trainer.state.fn != TrainerFn.FITTING or not trainer.is_global_zero:
        return []
    return [logger.experiment for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]


def add_images(writers: list[Any], pictures: Mapping[str, Any], env_steps: int) -> None:
    """Log images `[H, W, 3]` by tag, at a number of environment steps."""
    for tag, picture in pictures.items():
        for writer in writers:
            writer.add_image(tag, np.asarray(picture), env_steps, dataformats="HWC")
