"""How well a model of dynamics predicts: R2 of many steps ahead, and of its vector field."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def determination(
    predicted: Float[Tensor, "*rows D"], true: Float[Tensor, "*rows D"], known: Bool[Tensor, "*rows"] | None = None
) -> Float[Tensor, ""]:
    """Coefficient of determination over all dimensions at once: 1 - sum |predicted - true|^2 / sum |true - mean|^2.

    1 is perfect, 0 as good as the mean of what is true, and there is no lower bound.

    Args:
        known: rows that count; None counts all.
    """
    weight = torch.ones_like(true[..., :1]) if known is None else known.unsqueeze(-1).to(true.dtype)
    rows = tuple(range(true.dim() - 1))
    mean = (weight * true).sum(rows) / weight.sum()
    return 1 - (weight * (predicted - true).square()).sum() / (weight * (true - mean).square()).sum()


def determinations(
    latent: Float[Tensor, "T N D"],
    control: Float[Tensor, "L N D"],
    joined: Bool[Tensor, "L N"],
    true: Float[Tensor, "T N Dy"],
    *,
    step: Callable[[Tensor, Tensor], Tensor],
    decode: Callable[[Tensor], Tensor],
    ahead: Sequence[int],
) -> list[Float[Tensor, ""]]:
    """`determination` of observations so many steps ahead, from every state that has the farthest one ahead of it.

    It is nan where no trajectory is so long.

    Args:
        joined: steps that continue a trajectory; predictions across others do not count.
        step: the mean of the next state.   decode: the observation that is to be expected.
        ahead: ascending, at least 1.
    """
    farthest = max(k for k in (0, *ahead) if k <= len(control))
    starts = len(control) - farthest + 1
    state, known, found = latent[:starts], torch.ones_like(joined[:starts]), []
    for k in range(1, farthest + 1):
        state = step(state, control[k - 1 : starts + k - 1])
        known = known & joined[k - 1 : starts + k - 1]
        if k in ahead:
            found.append(determination(decode(state), true[k : starts + k], known))
    return found + [latent.new_tensor(math.nan)] * (len(ahead) - len(found))


Alignment = tuple[Float[Tensor, "D D"], Float[Tensor, "D"]]
"""An affine map from latent to true states, x = z A + b: a latent space is free up to an invertible map."""


def affine(latent: Float[Tensor, "M D"], state: Float[Tensor, "M D"]) -> Alignment:
    """The alignment of least squares, in float64: the rounding of float32 differs with where tensors lie in memory."""
    ones = torch.ones_like(latent[:, :1])
    found = torch.linalg.lstsq(torch.cat([latent, ones], dim=1).double(), state.double())
    solution = found.solution.to(state.dtype)
    return solution[:-1], solution[-1]


def aligned(latent: Float[Tensor, "*rows D"], alignment: Alignment | None) -> Float[Tensor, "*rows D"]:
    """Latent states in true coordinates; None leaves them."""
    return latent if alignment is None else latent @ alignment[0] + alignment[1]


def aligned_field(
    field: Callable[[Tensor], Tensor], state: Float[Tensor, "M D"], alignment: Alignment | None
) -> Float[Tensor, "M D"]:
    """A field of latent states at true ones, in their coordinates: f((x - b) A^-1) A."""
    if alignment is None:
        return field(state)
    matrix, offset = alignment
    return field(torch.linalg.solve(matrix, state - offset, left=False)) @ matrix


def velocity(dynamics: Any, latent: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
    """What latent states gain in a second without input: f, or the difference to the next state where f gives that."""
    field: Tensor = dynamics.field(latent)
    direct = dynamics.gain == 1 and not getattr(dynamics, "residual", False)
    return (field - latent) / float(dynamics.dt) if direct else field
