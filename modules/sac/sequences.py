"""Observations within sequences, for SAC with recurrent networks, and single steps of these networks."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor, nn

from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import add_prefix, strip_prefix
from datamodules.core.types import Obs, PolicyInput, SequenceContext, State
from modules.base.sequences import learned_features, next_features
from modules.networks.base import call_without_hooks

ACTOR, CRITIC = "actor_", "critic_"
"""Prefixes of the names of both torsos' states in the state of the policy."""


class SequenceObs(NamedTuple):
    """Observations `[M, *obs]` with the steps before them, M = L' x N: at which windows begin, or after the windows.

    context: the sequences, with the states of both torsos.
    next_obs: observations after the windows, `[L', N, *obs]`; None for those at which windows begin.
    """

    context: SequenceContext
    next_obs: Obs | None = None

    def features(self, network: Any, prefix: str) -> Tensor:
        """Return features `[M, F]` of a recurrent network, whose state has names with this prefix.

        Those after windows, and the steps of the burn-in, have no gradient.
        """
        context = self.context._replace(state=strip_prefix(prefix, self.context.state))
        if self.next_obs is None:
            return learned_features(network, context).flatten(0, 1)
        return next_features(network, context, self.next_obs).flatten(0, 1)

    def map_obs(self, function: Callable[[Obs], Obs]) -> "SequenceObs":
        """Apply a function to all observations."""
        next_obs = None if self.next_obs is None else function(self.next_obs)
        return SequenceObs(self.context._replace(obs=function(self.context.obs)), next_obs)


def step_torso(network: Any, prefix: str, obs: Obs, inputs: PolicyInput) -> tuple[Tensor, State]:
    """Return the features `[B, F]` of a recurrent network for one step, and its next state under names with a prefix.

    Args:
        obs: normalised observations of the step, `[B, *obs]`.
    """
    state = strip_prefix(prefix, inputs.state)
    features, state = call_without_hooks(network, obs, state, inputs.episode_start)
    return features, add_prefix(prefix, state)


def check_recurrent_parts(network: nn.Module, critic: nn.Module, curiosity: object) -> None:
    """Check that actor and critics are both recurrent, or both feed-forward, and that curiosity has single steps.

    Raises: ConfigurationError otherwise.
    """
    recurrent, name, critics = hasattr(network, "unroll"), type(network).__name__, type(critic).__name__
    if recurrent and not hasattr(critic, "torso"):
        raise ConfigurationError(
            f"model.network is {name}, which is recurrent, but model.critic is {critics}, which is not: set"
            " model.critic to modules.networks.RecurrentCritic."
        )
    if hasattr(critic, "torso") and not recurrent:
        raise ConfigurationError(
            f"model.critic is {critics}, which is recurrent, but model.network is {name}, which is not: set"
            " model.network to LSTM, GRU or MinGRU, or model.critic to TwinMLP."
        )
    if recurrent and curiosity is not None:
        raise ConfigurationError(
            f"model.curiosity predicts from single observations, but model.network is {name}, which is recurrent: set"
            " model.curiosity to null, or model.network to a feed-forward one."
        )
