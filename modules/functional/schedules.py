"""Schedules of learning rates, clip ranges and coefficients over the progress of a run."""

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]


def schedule_value(kind: Schedule, start: float, progress: float, end: float = 0.0) -> float:
    """Return the value of a schedule at `progress` of the run.

    constant: start
    linear:   start + (end - start) p
    cosine:   end + (start - end) (1 + cos(pi p)) / 2

    Args:
        kind: `constant`, `linear` or `cosine`; `constant` ignores `end`.
        start: the value at progress 0.
        progress: p, fraction of the run; clamped to [0, 1], since the last iteration may overshoot the run's length.
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
