"""GradientStatistics: mean, variance and norm over all gradients."""

from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from datamodules.core.errors import ConfigurationError


class GradientStatistics(Callback):
    """Log mean, variance and norm over all gradients by an interval: `gradients/mean`, `/variance`, `/norm`.

    They are the gradients with which the last optimizer step of the iteration was taken, of all optimizers: averaged
    over ranks, and clipped. `train/grad_norm` is the norm before clipping, as a mean of all steps. Nothing is computed
    in other iterations.

    Args:
        every_n_iterations: iterations between two measurements.

    Raises: ConfigurationError if it is below 1.
    """

    acts_per_iteration = False

    def __init__(self, every_n_iterations: int = 100):
        if every_n_iterations < 1:
            raise ConfigurationError(
                f"GradientStatistics's every_n_iterations is {every_n_iterations}; it must be at least 1."
            )
        self.every_n_iterations = every_n_iterations

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Begin to count."""
        self._iteration = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log, if due."""
        every, before = self.every_n_iterations, self._iteration
        self._iteration = trainer.global_step
        due = trainer.is_global_zero and self._iteration // every > before // every
        if due and (gradients := pl_module.optim.gradients()):
            names = ("gradients/mean", "gradients/variance", "gradients/norm")
            pl_module.log_values(dict(zip(names, statistics(gradients).tolist(), strict=True)))


@torch.no_grad()
def statistics(gradients: list[Tensor]) -> Tensor:
    """Return mean, variance (the population's) and norm over the entries of all tensors, float64 `[3]`."""
    number = sum(gradient.numel() for gradient in gradients)
    total = torch.stack([gradient.sum(dtype=torch.float64) for gradient in gradients]).sum()
    squares = torch.stack([gradient.double().square().sum() for gradient in gradients]).sum()
    mean = total / number
    return torch.stack([mean, (squares / number - mean.square()).clamp(min=0), squares.sqrt()])
