"""How policies try what they do not believe to be best."""

from jaxtyping import Bool, Float, Int
from torch import Tensor


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
