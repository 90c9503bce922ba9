"""How well a model of dynamics predicts: R2 of many steps ahead, and of its vector field."""

from collections.abc import Callable

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


def affine(
    latent: Float[Tensor, "M D"], state: Float[Tensor, "M D"]
) -> tuple[Float[Tensor, "D D"], Float[Tensor, "D"]]:
    """The affine map state = latent A + b of least squares: a latent space is free up to an invertible map."""
    ones = torch.ones_like(latent[:, :1])
    solution = torch.linalg.lstsq(torch.cat([latent, ones], dim=1), state).solution
    return solution[:-1], solution[-1]


def field_determination(
    field: Callable[[Tensor], Tensor],
    grid: Float[Tensor, "G D"],
    true: Float[Tensor, "G D"],
    alignment: tuple[Float[Tensor, "D D"], Float[Tensor, "D"]] | None = None,
) -> Float[Tensor, ""]:
    """R2 of a learned vector field on a grid of true states.

    Args:
        field: of latent states.
        alignment: from latent to true states, A and b of `affine`: the field at x is A-transformed f((x - b) A^-1).
    """
    if alignment is None:
        return determination(field(grid), true)
    matrix, offset = alignment
    return determination(field(torch.linalg.solve(matrix, grid - offset, left=False)) @ matrix, true)
