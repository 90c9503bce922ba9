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
    fraction = min(max(progress, 0.0), 1.0)
    match kind:
        case "constant":
            return start
        case "linear":
            return start + (end - start) * fraction
        case "cosine":
            return end + (start - end) * 0.5 * (1.0 + math.cos(math.pi * fraction))
    raise ValueError(f"schedule is {kind!r}; use constant, linear or cosine.")


def scaled_learning_rate(rate: float, batch: int, reference: int | None, maximum: float | None = None) -> float:
    """Return rate * sqrt(batch / reference), at most `maximum`.

    Args:
        rate: the learning rate for minibatches of `reference` transitions.
        batch: transitions of a minibatch, of all ranks together.
        reference: transitions of the minibatch that `rate` was chosen for; None leaves the rate as it is.
        maximum: the largest learning rate; None for no limit.

    Source: Krizhevsky 2014, arXiv:1404.5997; Malladi et al. 2022, arXiv:2205.10287, for Adam.
    """
    scaled = rate if reference is None else rate * math.sqrt(batch / reference)
    return scaled if maximum is None else min(scaled, maximum)


def warmup_factor(progress: float, fraction: float) -> float:
    """Return the factor of a linear warm-up: progress / fraction within the first `fraction` of the run, then 1.

    Args:
        progress: fraction of the run at the end of the iteration, so that the first factor is not 0.
        fraction: fraction of the run that warms up; 0 for none.
    """
    return 1.0 if progress >= fraction else progress / fraction
