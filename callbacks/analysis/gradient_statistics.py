"""GradientStatistics: mean, variance and norm over all gradients."""

from typing import Any

import torch
from torch import Tensor

from callbacks.analysis.interval import IntervalCallback


class GradientStatistics(IntervalCallback):
    """Log mean, variance and norm over all gradients by an interval: `gradients/mean`, `/variance`, `/norm`.

    They are the gradients with which the last optimizer step of the iteration was taken, of all optimizers: averaged
    over ranks, and clipped. `train/grad_norm` is the norm before clipping, as a mean of all steps. Nothing is computed
    in other iterations.

    Args:
        every_n_iterations: iterations between two measurements.

    Raises: ConfigurationError if it is below 1.
    """

    def __init__(self, every_n_iterations: int = 100):
        super().__init__(every_n_iterations)

    def measure(self, module: Any) -> dict[str, float]:
        """Return mean, variance and norm by tag."""
        names = ("gradients/mean", "gradients/variance", "gradients/norm")
        gradients = module.optim.gradients()
        return dict(zip(names, statistics(gradients).tolist(), strict=True)) if gradients else {}


@torch.no_grad()
def statistics(gradients: list[Tensor]) -> Tensor:
    """Return mean, variance (the population's) and norm over the entries of all tensors, float64 `[3]`."""
    number = sum(gradient.numel() for gradient in gradients)
    total = torch.stack([gradient.sum(dtype=torch.float64) for gradient in gradients]).sum()
    squares = torch.stack([gradient.double().square().sum() for gradient in gradients]).sum()
    mean = total / number
    return torch.stack([mean, (squares / number - mean.square()).clamp(min=0), squares.sqrt()])
