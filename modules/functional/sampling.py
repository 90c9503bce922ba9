"""Random choices among discrete actions: Gumbel noise, masked logits, epsilon-greedy."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

MASKED_LOGIT = -1e8
"""Logit or value of a masked choice: finite, so that entropies and gradients are finite, and below any noise."""


def gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw standard Gumbel noise on the generator's device; argmax(logits + noise) is a sample of the softmax.

    It is -log E with E exponential: `exponential_` never draws 0, so it is always finite.
    """
    return torch.empty(shape, device=generator.device).exponential_(generator=generator).log_().neg_()


def epsilon_greedy(
    best: Int[Tensor, "*N"],
    epsilon: Tensor | float,
    noise: Float[Tensor, "*N actions_and_one"],
    mask: Bool[Tensor, "*N actions"] | None = None,
) -> Int[Tensor, "*N"]:
    """Return the greedy action, or with probability epsilon a uniformly drawn allowed one.

    Args:
        best: greedy action.
        epsilon: probability of a random action, in [0, 1].
        noise: uniforms in [0, 1): one per action, whose argmax is the random action, and one compared with epsilon.
        mask: allowed actions; None allows all.
    """
    lots, chance = noise.narrow(-1, 0, noise.shape[-1] - 1), noise.select(-1, -1)
    lots = lots if mask is None else lots.masked_fill(~mask, -1.0)
    return lots.argmax(-1).where(chance < epsilon, best)
