"""Options written by hand: where each may start, what it does, and when it ends."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from datamodules.core.errors import UsageError


class OptionPolicy(Protocol):
    """One hand-written option: batched functions without state, so that they can be compiled and captured.

    Bring your own: any class with these members, built from plain arguments and named by its dotted path as a
    `class_path`. Observations are those of the environment, before any normalisation. `age` counts the steps that the
    option has run before this one, int64: 0 at its first.

    uses_actor: whether `action` depends on the learned action. Where it does not, the actor is not trained by this
        option, and the option earns no entropy bonus.
    min_duration: steps before it may end.
    max_duration: steps after which it must end; 0 for no limit.
    """

    uses_actor: bool
    min_duration: int
    max_duration: int

    def initiation(self, obs: Tensor) -> Tensor:
        """Whether it may start, bool `[B]` for observations `[B, *obs_shape]`."""
        ...

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """What it does, in the environment's units and of the shape and dtype of `actor_action`.

        Args:
            age: `[B]`.
            actor_action: what the learned actor would do, `[B, parts]` (discrete `[B]`); scale it, replace it, or mix.
        """
        ...

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Probability `[B]` of ending before this step, given that it has run `age` steps."""
        ...


class ScriptedOptions:
    """K hand-written options as functions of a batch; the work of all K is done for every row.

    Args:
        policies: the options, in the order of their numbers.

    Raises: UsageError if there are none, or if a duration cannot be.
    """

    def __init__(self, policies: Sequence[OptionPolicy]):
        if not policies:
            raise UsageError("model.scripted is empty: list at least one option, or leave it out to learn them all.")
        for policy in policies:
            check_durations(policy.min_duration, policy.max_duration, type(policy).__name__)
        self.policies = tuple(policies)

    def initiation(self, obs: Tensor) -> Tensor:
        """Which options may start, bool `[B, K]`."""
        return torch.stack([policy.initiation(obs) for policy in self.policies], -1)

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """What every option does, `[B, K, ...]`, from ages `[B, K]` and the actor's heads `[B, K, ...]`."""
        columns = zip(self.policies, age.unbind(1), actor_action.unbind(1), strict=True)
        return torch.stack([policy.action(obs, since, action) for policy, since, action in columns], 1)

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Probabilities `[B, K]` of ending, from ages `[B, K]`."""
        columns = zip(self.policies, age.unbind(1), strict=True)
        return torch.stack([policy.termination(obs, since) for policy, since in columns], 1)


def check_durations(min_duration: int, max_duration: int, what: str) -> None:
    """Raises: UsageError unless 1 <= min_duration <= max_duration, or max_duration is 0 (no limit)."""
    if min_duration < 1 or (max_duration and max_duration < min_duration):
        raise UsageError(
            f"{what} has min_duration {min_duration} and max_duration {max_duration}: give at least 1 step, and a"
            " max_duration that is not smaller, or 0 for no limit."
        )


def check_scripts(policies: Sequence[OptionPolicy] | None, normalized: bool, action_kind: str) -> None:
    """Raises: UsageError for an empty list, and where options could not do what their protocol says."""
    if policies is None:
        return
    ScriptedOptions(policies)
    if normalized:
        raise UsageError("Scripted options read observations as they are: set model.normalize_obs to false.")
    if action_kind == "discrete" and any(policy.uses_actor for policy in policies):
        raise UsageError("A scripted option cannot use the actor's choice of a discrete action: set uses_actor False.")
