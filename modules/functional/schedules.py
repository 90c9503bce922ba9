"""Values that change with the progress of a run: learning rates, clip ranges, weights."""

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]


def scheduled(kind: Schedule, start: float, progress: float, end: float = 0.0) -> float:
    """The value of a schedule after a share `progress` of the run.

    constant: start
    linear:   start + (end - start) p
    cosine:   end + (start - end) (1 + cos(pi p)) / 2

    Args:
        kind: which of the three; `constant` ignores `end`.
        start: the value at progress 0.
        progress: p; below 0 counts as 0 and above 1 as 1, since the last iteration may overshoot the run's length.
        end: the value at progress 1.

    Raises:
        ValueError: If the kind is unknown.

    Source: the cosine is Loshchilov and Hutter 2017, arXiv:1608.03983, eq. 5, without restarts.
    """
    share = min(max(progress, 0.0), 1.0)
    match kind:
        case "constant":
            return start
        case "linear":
            return start + (end - start) * share
        case "cosine":
            return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * share))
    raise ValueError(f"schedule is {kind!r}; use constant, linear or cosine.")
