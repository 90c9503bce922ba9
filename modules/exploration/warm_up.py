"""Warm-up of an exploring agent: a policy without a model acts first, and can provide the first latent coordinates."""

from typing import Any

import torch
from torch import Tensor, nn

from modules.exploration.planners import check
from modules.exploration.policies import HeldRandomAction

UNKNOWN_VARIANCE = 1e6
"""Variance of a prediction during the warm-up: the next correction then takes the encoder's estimate alone."""


class WarmUp(nn.Module):
    """First steps of an agent, in which another policy acts; part of the checkpoint.

    Args:
        steps: number of steps of each agent.
        exploration: policy of these steps; null for `HeldRandomAction`.
        linear_init: set encoder and decoder by probabilistic PCA of the observations of these steps when they end. The
            encoder must be linear (`hidden: []`) and the decoder a `LinearDecoder`.

    Raises: ValueError if `steps` is not positive.
    """

    taken: Tensor

    def __init__(self, steps: int = 100, exploration: nn.Module | None = None, linear_init: bool = False):
        super().__init__()
        check(steps=steps)
        self.steps, self.linear_init = steps, linear_init
        self.exploration: Any = exploration or HeldRandomAction()
        self.register_buffer("taken", torch.zeros((), dtype=torch.int64))

    @property
    def active(self) -> Tensor:
        """Return whether the next step belongs to the warm-up, a scalar."""
        return self.taken < self.steps

    def count_(self, steps: int) -> bool:
        """Count new steps of each agent; return whether the warm-up ended with them."""
        before = int(self.taken)
        self.taken += steps
        return before < self.steps <= before + steps
