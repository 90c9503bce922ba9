"""Which option acted: the record of an action in rollout and replay."""

from typing import NamedTuple

import torch
from torch import Tensor


class OptionRecord(NamedTuple):
    """Option of an action, columns of any shape `[...]`.

    option: index of the option that acted.
    previous: index of the previous option; undefined where an episode begins.
    started: whether the option started at this step.
    previous_age: steps that the previous option had run, 0 where an episode begins.
    """

    option: Tensor
    previous: Tensor
    started: Tensor
    previous_age: Tensor

    @classmethod
    def of(cls, extras: dict[str, Tensor]) -> "OptionRecord":
        """Return the record stored in the extras of an action."""
        return cls(*(extras[name] for name in NAMES))

    def extras(self) -> dict[str, Tensor]:
        """Return the extras of an action."""
        return dict(zip(NAMES, self, strict=True))

    @property
    def age(self) -> Tensor:
        """Return the steps that the option has run, the current one included."""
        return torch.where(self.started, 1, self.previous_age + 1)

    @property
    def episode_start(self) -> Tensor:
        """Return where an episode begins."""
        return self.previous_age == 0


NAMES = ("option", "option_previous", "option_started", "option_previous_age")
