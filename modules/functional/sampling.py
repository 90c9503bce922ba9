"""Choices among a few: how one is drawn, and how one is forbidden."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

MASKED = -1e8
"""Logit or value of what may not be chosen: finite, so that entropies and gradients are, and out of reach of noise."""


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise on the generator's device; the largest sum of logit and noise is a draw.

    It is -log E with E exponential: `exponential_` never draws 0, so it is always finite.
    """
    return torch.empty(shape, device=generator.device).exponential_(generator=generator).log_().neg_()


def epsilon_greedy(
    best: Int[Tensor, "*N"],
    epsilon: Tensor | float,
    noise: Float[Tensor, "*N actions_and_one"],
    mask: Bool[Tensor, "*N actions"] | None = None,
) -> Int[Tensor, "*N"]:
    """The best action, or with probability epsilon any allowed one, each as likely.

    Args:
        best: action to take otherwise.
        epsilon: in [0, 1].
        noise: uniforms in [0, 1): a lot for every action, the largest of which is drawn, and whether to draw.
        mask: which actions are allowed; None allows all.
    """
    lots = noise[..., :-1] if mask is None else noise[..., :-1].masked_fill(~mask, -1.0)
    return lots.argmax(-1).where(noise[..., -1] < epsilon, best)
