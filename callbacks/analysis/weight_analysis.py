"""WeightAnalysis: norms and singular values of the weights of linear layers."""

from typing import Any

import torch
from torch import Tensor, nn

from callbacks.analysis.interval import IntervalCallback
from datamodules.core.arguments import check_ranges

MEASURES = ("frobenius_norm", "largest", "mean", "condition_number", "effective_rank", "collapsed_share")
"""What `spectrum` returns, in this order."""


class WeightAnalysis(IntervalCallback):
    """Log the spectrum of the weight matrix of every linear layer, by an interval: `weights/LAYER/MEASURE`.

    `frobenius_norm`, `largest` and `mean` singular value, `condition_number` (largest by smallest), `effective_rank`
    (how many of the largest singular values have 99 % of the sum), `collapsed_share` (share of singular values below
    `collapsed_below` times the largest). A falling rank and a growing share are signs of lost plasticity.

    Rank 0 computes the singular values on the device of the weights, and waits for them.

    Args:
        every_n_iterations: iterations between two analyses.
        collapsed_below: a singular value is collapsed if it is smaller than this share of the largest; in (0, 1).

    Raises: ConfigurationError for values out of range.

    Source: effective rank and plasticity: Kumar et al. 2021, arXiv:2010.14498, definition 1, with delta 0.01.
    """

    def __init__(self, every_n_iterations: int = 500, collapsed_below: float = 0.01):
        check_ranges(
            "WeightAnalysis",
            ("every_n_iterations", every_n_iterations, every_n_iterations >= 1, "at least 1"),
            ("collapsed_below", collapsed_below, 0 < collapsed_below < 1, "a number between 0 and 1"),
        )
        super().__init__(every_n_iterations)
        self.collapsed_below = collapsed_below

    def measure(self, module: Any) -> dict[str, float]:
        """Return the measures of every linear layer, by tag."""
        layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}
        spectra = [spectrum(layer.weight, self.collapsed_below).tolist() for layer in layers.values()]
        return {
            f"weights/{name}/{measure}": value
            for name, values in zip(layers, spectra, strict=True)
            for measure, value in zip(MEASURES, values, strict=True)
        }


@torch.no_grad()
def spectrum(weight: Tensor, collapsed_below: float) -> Tensor:
    """Return the `MEASURES` of a weight matrix `[outputs, inputs]`, float64 `[6]`; NaN if an entry is not finite.

    Args:
        weight: the matrix.
        collapsed_below: share of the largest singular value.
    """
    if not bool(weight.isfinite().all()):
        return torch.full((len(MEASURES),), torch.nan, dtype=torch.float64)
    values = torch.linalg.svdvals(weight.double())
    largest, smallest = values[0], values[-1]
    rank = 1 + (values.cumsum(0) < 0.99 * values.sum()).sum()
    collapsed = (values < collapsed_below * largest).double().mean()
    norm = torch.linalg.vector_norm(values)
    return torch.stack([norm, largest, values.mean(), largest / smallest, rank.double(), collapsed])
