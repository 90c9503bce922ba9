"""TensorBoard for callbacks that show more than numbers."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.trainer.states import TrainerFn


def boards(trainer: Trainer) -> list[Any]:
    """The writers that this process has while fitting: none on other ranks, in other verbs and without TensorBoard."""
    if trainer.state.fn != TrainerFn.FITTING or not trainer.is_global_zero:
        return []
    return [logger.experiment for logger in trainer.loggers if isinstance(logger, TensorBoardLogger)]


def show(writers: list[Any], pictures: Mapping[str, Any], env_steps: int) -> None:
    """Draw pictures `[H, W, 3]` by tag, against environment steps."""
    for tag, picture in pictures.items():
        for writer in writers:
            writer.add_image(tag, np.asarray(picture), env_steps, dataformats="HWC")
