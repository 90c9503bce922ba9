"""Prediction metrics of a dynamics model: R2 of several steps ahead, alignment of latent states, its vector field."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def r2_score(
    predicted: Float[Tensor, "*rows D"], true: Float[Tensor, "*rows D"], known: Bool[Tensor, "*rows"] | None = None
) -> Float[Tensor, ""]:
    """Compute the coefficient of determination over all dimensions: 1 - sum |predicted - true|^2 / sum |true - mean|^2.

    1 is perfect, 0 as good as predicting the mean of the true values; there is no lower bound.

    Args:
        known: rows that count; None counts all.
    """
    weight = torch.ones_like(true[..., :1]) if known is None else known.unsqueeze(-1).to(true.dtype)
    rows = tuple(range(true.dim() - 1))
    mean = (weight * true).sum(rows) / weight.sum()
    return 1 - (weight * (predicted - true).square()).sum() / (weight * (true - mean).square()).sum()


def r2_scores(
    latent: Float[Tensor, "T N D"],
    control: Float[Tensor, "L N D"],
    contiguous: Bool[Tensor, "L N"],
    true: Float[Tensor, "T N Dy"],
    *,
    step: Callable[[Tensor, Tensor], Tensor],
    decode: Callable[[Tensor], Tensor],
    ahead: Sequence[int],
) -> list[Float[Tensor, ""]]:
    """Compute `r2_score` of observations `ahead` steps ahead, from every state with a true state that far ahead.

    NaN if no trajectory is long enough.

    Args:
        contiguous: steps that continue a trajectory; predictions across others do not count.
        step: returns the mean of the next state.
        decode: returns the expected observation.
        ahead: numbers of steps, ascending, at least 1.
    """
    farthest = max(k for k in (0, *ahead) if k <= len(control))
    starts = len(control) - farthest + 1
    state, known, found = latent[:starts], torch.ones_like(contiguous[:starts]), []
    for k in range(1, farthest + 1):
        state = step(state, control[k - 1 : starts + k - 1])
        known = known & contiguous[k - 1 : starts + k - 1]
        if k in ahead:
            found.append(r2_score(decode(state), true[k : starts + k], known))
    return found + [latent.new_tensor(math.nan)] * (len(ahead) - len(found))


Alignment = tuple[Float[Tensor, "D D"], Float[Tensor, "D"]]
"""Affine map from latent to true states, x = z A + b: a latent space is only identified up to an invertible map."""


def fit_affine(latent: Float[Tensor, "M D"], state: Float[Tensor, "M D"]) -> Alignment:
    """Fit the alignment by least squares, in float64: float32's rounding depends on memory alignment."""
    ones = torch.ones_like(latent[:, :1])
    found = torch.linalg.lstsq(torch.cat([latent, ones], dim=1).double(), state.double())
    solution = found.solution.to(state.dtype)
    return solution[:-1], solution[-1]


def apply_affine(latent: Float[Tensor, "*rows D"], alignment: Alignment | None) -> Float[Tensor, "*rows D"]:
    """Return latent states in true coordinates; None returns them unchanged."""
    return latent if alignment is None else latent @ alignment[0] + alignment[1]


def aligned_field(
    field: Callable[[Tensor], Tensor], state: Float[Tensor, "M D"], alignment: Alignment | None
) -> Float[Tensor, "M D"]:
    """Evaluate a field of latent states at true ones, in true coordinates: f((x - b) A^-1) A."""
    if alignment is None:
        return field(state)
    matrix, offset = alignment
    return field(torch.linalg.solve(matrix, state - offset, left=False)) @ matrix


def velocity(dynamics: Any, latent: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
    """Return the change of latent states per second without input.

    It is f, or the difference to the next state where f predicts that.
    """
    field: Tensor = dynamics.field(latent)
    direct = dynamics.gain == 1 and not getattr(dynamics, "residual", False)
    return (field - latent) / float(dynamics.dt) if direct else field
