"""Hand-written options: initiation, action and termination of each."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import Obs, SpaceSpec, require_tensor


class OptionPolicy(Protocol):
    """Interface of a hand-written option: batched functions without state, so that they can be compiled and captured.

    Bring your own: any class with these members, built from plain arguments and named by its dotted path as a
    `class_path`. Observations are those of the environment, without normalisation. `age` counts the steps that the
    option has run before the current one, int64: 0 at its first.

    uses_actor: whether `action` depends on the learned action. If not, the actor is not trained by this option, and the
        option gets no entropy bonus.
    min_duration: minimum number of steps.
    max_duration: maximum number of steps; 0 for no limit.

    An optional method `check_spaces(spaces)` raises ConfigurationError for an environment that the option does not fit.
    """

    uses_actor: bool
    min_duration: int
    max_duration: int

    def initiation(self, obs: Tensor) -> Tensor:
        """Return whether the option may start, bool `[B]` for observations `[B, *obs_shape]`."""
        ...

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """Return the action, in the environment's units and of the shape and dtype of `actor_action`.

        Args:
            age: `[B]`.
            actor_action: the learned actor's action, `[B, parts]` (discrete `[B]`); scale it, replace it, or mix.
        """
        ...

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Return the probability `[B]` of terminating before the current step, given `age` steps run."""
        ...


class ScriptedOptions:
    """K hand-written options as batched functions; all K are computed for every row.

    Args:
        policies: the options, in the order of their indices.

    Raises: ConfigurationError if there are none, or for an invalid duration.
    """

    def __init__(self, policies: Sequence[OptionPolicy]):
        if not policies:
            raise ConfigurationError(
                "model.scripted_options is empty: list at least one option, or leave it out to learn them all."
            )
        for policy in policies:
            check_durations(policy.min_duration, policy.max_duration, type(policy).__name__)
        self.policies = tuple(policies)

    def initiation(self, obs: Obs) -> Tensor:
        """Return which options may start, bool `[B, K]`."""
        return torch.stack([policy.initiation(require_tensor(obs)) for policy in self.policies], -1)

    def action(self, obs: Obs, age: Tensor, actor_action: Tensor) -> Tensor:
        """Return every option's action, `[B, K, ...]`, from ages `[B, K]` and the actor's actions `[B, K, ...]`."""
        columns = zip(self.policies, age.unbind(1), actor_action.unbind(1), strict=True)
        return torch.stack([policy.action(require_tensor(obs), since, action) for policy, since, action in columns], 1)

    def termination(self, obs: Obs, age: Tensor) -> Tensor:
        """Return the termination probabilities `[B, K]`, from ages `[B, K]`."""
        columns = zip(self.policies, age.unbind(1), strict=True)
        return torch.stack([policy.termination(require_tensor(obs), since) for policy, since in columns], 1)


def check_durations(min_duration: int, max_duration: int, what: str) -> None:
    """Check that 1 <= min_duration <= max_duration, or max_duration is 0 (no limit).

    Raises: ConfigurationError otherwise.
    """
    if min_duration < 1 or (max_duration and max_duration < min_duration):
        raise ConfigurationError(
            f"{what} has min_duration {min_duration} and max_duration {max_duration}: give at least 1 step, and a"
            " max_duration that is not smaller, or 0 for no limit."
        )


def check_scripts(policies: Sequence[OptionPolicy] | None, normalized: bool, spaces: SpaceSpec) -> None:
    """Check the list of hand-written options and the settings that they require.

    Raises: ConfigurationError for an empty list, normalised observations, the use of a discrete actor action, or an
        option of other spaces.
    """
    if policies is None:
        return
    ScriptedOptions(policies)
    if normalized:
        raise ConfigurationError("Scripted options need unnormalised observations: set model.normalize_obs to false.")
    for policy in policies:
        if hasattr(policy, "check_spaces"):
            policy.check_spaces(spaces)
    if spaces["action_type"] == "discrete" and any(policy.uses_actor for policy in policies):
        raise ConfigurationError(
            "A scripted option cannot use the actor's choice of a discrete action: set uses_actor False."
        )
