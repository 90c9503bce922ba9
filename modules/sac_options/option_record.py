"""Which option acted: what a decision leaves in the rollout and in the replay."""

from typing import NamedTuple

import torch
from torch import Tensor


class Executed(NamedTuple):
    """Which option acted, columns of any shape `[...]`.

    option: it.   previous: the one before it, without meaning where an episode begins.   begun: whether it begins here.
    ran: steps that the previous one had run, 0 where an episode begins.
    """

    option: Tensor
    previous: Tensor
    begun: Tensor
    ran: Tensor

    @classmethod
    def of(cls, extras: dict[str, Tensor]) -> "Executed":
        """As a decision left it."""
        return cls(*(extras[name] for name in NAMES))

    def extras(self) -> dict[str, Tensor]:
        """For a decision."""
        return dict(zip(NAMES, self, strict=True))

    @property
    def age(self) -> Tensor:
        """Steps the option has run, the present one included."""
        return torch.where(self.begun, 1, self.ran + 1)

    @property
    def first(self) -> Tensor:
        """Where an episode begins."""
        return self.ran == 0


NAMES = ("option", "option_previous", "option_begun", "option_ran")
