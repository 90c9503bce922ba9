"""How Lightning's own counters are made to count iterations, and to go on after the end of a shorter run."""

from typing import Any

import torch
from torch.optim import Optimizer


class Tick(Optimizer):
    """An optimizer of nothing: stepped once an iteration, so that Lightning's `global_step` counts iterations."""

    def __init__(self) -> None:
        super().__init__([torch.zeros(1)], {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Let Lightning's closure run; change nothing."""
        if closure is not None:
            closure()


def reopen(loops: dict[str, Any]) -> None:
    """Let a run go on that was saved at the end of a shorter one: its only epoch is not over yet.

    Args:
        loops: the state of Lightning's loops in a checkpoint; changed in place.
    """
    fit = loops["fit_loop"]
    fit["epoch_loop.batch_progress"]["is_last_batch"] = False
    for progress in fit["epoch_progress"].values():
        progress["processed"] = progress["completed"] = 0
        progress["ready"] = progress["started"] = 1
