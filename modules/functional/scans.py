"""Parallel scans: all states of a recurrence from logarithmically many operations on whole sequences."""

import torch
from jaxtyping import Float
from torch import Tensor


def linear_scan(keep: Float[Tensor, "T *N"], enter: Float[Tensor, "T *N"], initial: Float[Tensor, "*N"]) -> Tensor:
    """Compute all states of the linear recurrence h_t = keep_t h_{t-1} + enter_t, `[T, *N]`.

    Two consecutive steps are one step with the factor keep_t keep_{t-1} and the input keep_t enter_{t-1} + enter_t.
    Steps are merged over distances 1, 2, 4 and so on, log2 T times. With factors in [0, 1] no intermediate result
    exceeds the largest state of a part of the sequence: nothing overflows, and a factor of 0 forgets all before it.

    Args:
        keep: factor of the previous state, in [0, 1]; 0 where a sequence begins again.
        enter: input of every step.
        initial: h_{-1}.

    Source: Hillis and Steele 1986, doi:10.1145/7902.7903; for recurrences, Martin and Cundy 2018, arXiv:1709.04057,
    section 2.2.
    """
    states = torch.cat([torch.addcmul(enter[:1], keep[:1], initial), enter[1:]])
    distance = 1
    while distance < len(keep):
        later = torch.addcmul(states[distance:], keep[distance:], states[:-distance])
        states = torch.cat([states[:distance], later])
        distance *= 2
        if distance < len(keep):
            half = distance // 2
            keep = torch.cat([keep[:half], keep[half:] * keep[:-half]])
    return states
