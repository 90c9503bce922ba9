"""Asking the actor: as part of a captured rollout, or compiled or captured by itself."""

from typing import Any

import torch
from torch import Tensor

from datamodules.core.phase import Joint
from datamodules.core.protocols import Actor
from datamodules.core.pytree import mapped
from datamodules.core.types import Decision, State


class Acting:
    """Decides for a group of rows.

    Where environments are made of tensors, deciding is a part of what is captured. Real ones cannot be captured,
    but what happens between two of their steps can: a call then costs a GPU one launch instead of dozens.

    Args:
        actor: decides.   device: where.

    Attributes:
        joint: the compiled or captured form; results are overwritten by its next call.
    """

    def __init__(self, actor: Actor, device: torch.device):
        self.actor = actor
        self.joint: Joint[tuple[Decision, State]] = Joint(
            lambda *args: self.ask(*args),
            device,
            name="acting",
            parts=[(self, "ask")] if getattr(actor, "compilable", True) else [],
            timed=False,
        )
        self._owns = False

    def ask(
        self, obs: Tensor, state: State, reset: Tensor, mask: Tensor | None, noise: Tensor
    ) -> tuple[Decision, State]:
        """What the actor decides."""
        return self.actor.act(obs, state, reset, mask=mask, noise=noise)

    def __call__(
        self, obs: Tensor, state: State, reset: Tensor, *, mask: Tensor | None, noise: Tensor
    ) -> tuple[Decision, State]:
        """`Actor.act` in the form that the joint has."""
        args: tuple[Any, ...] = (obs, state, reset, mask, noise)
        if not self._owns:  # what a graph reads at every replay must be nobody else's
            self._owns, args = True, tuple(arg if arg is None else mapped(torch.clone, arg) for arg in args)
        return self.joint(*args)
