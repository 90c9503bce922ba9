"""Running options: which goes on and which begins, for a whole batch of environments at once."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from modules.functional.choices import gumbel

Rows = Int[Tensor, "B"]


class Choice(NamedTuple):
    """What runs now: the option `[B]`, the steps it has run with this one `[B]`, and whether it begins here `[B]`."""

    option: Rows
    age: Rows
    begun: Bool[Tensor, "B"]


def next_option(
    option: Rows,
    age: Rows,
    reset: Bool[Tensor, "B"],
    logits: Float[Tensor, "B K"],
    termination: Float[Tensor, "B K"],
    noise: Float[Tensor, "B L"] | None,
    *,
    min_duration: Int[Tensor, "K"] | None = None,
    max_duration: Int[Tensor, "K"] | None = None,
) -> Choice:
    """Call and return: an option runs until it terminates, then the master chooses the next.

    begun = reset or (age >= min and u < beta(option)) or age >= max

    Args:
        option, age: what ran before this step, and for how many steps.
        reset: rows where an episode begins: whatever ran before is over.
        logits: of the master, masked where an option is not offered. The running option may go on where it could not
            begin.
        termination: beta, probability of ending here.
        noise: K standard Gumbel draws and one uniform a row (`choice_noise`); None takes the most likely option, and
            ends those with beta above 1/2.
        min_duration, max_duration: of every option, in steps; 0 for no maximum, None where none is set.

    Source: Sutton, Precup and Singh 1999, doi:10.1016/S0004-3702(99)00052-1, section 2.
    """
    running = option.unsqueeze(-1)
    beta = termination.gather(-1, running).squeeze(-1)
    ends = beta > 0.5 if noise is None else noise[..., -1] < beta
    if min_duration is not None:
        ends = ends & (age >= min_duration[option])
    if max_duration is not None:
        longest = max_duration[option]
        ends = ends | ((age >= longest) & (longest > 0))
    begun = ends | reset
    chosen = (logits if noise is None else logits + noise[..., :-1]).argmax(-1)
    return Choice(torch.where(begun, chosen, option), age.masked_fill(begun, 0) + 1, begun)


def choice_noise(shape: tuple[int, ...], options: int, generator: torch.Generator) -> Tensor:
    """Randomness for one `next_option` at each index of `shape`: `[*shape, K + 1]`, on the generator's device."""
    uniform = torch.rand((*shape, 1), generator=generator, device=generator.device)
    return torch.cat([gumbel((*shape, options), generator), uniform], -1)
