"""Bootstrap values of a rollout's steps, and features of a recurrent network for sequences from a replay."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from datamodules.core.pytree import tree_map
from datamodules.core.types import Obs, Rollout, SequenceContext, State
from modules.networks.base import RecurrentNetwork, call_without_hooks, no_episode_start


def next_values(rollout: Rollout, values: Tensor, value: Callable[[Obs], Tensor]) -> Tensor:
    """Return the value of the observation after every step, before any reset, `[T, B]`.

    Args:
        values: of the rollout's observations, `[T+1, B]`.
        value: maps observations `[S x B, *obs]` to values; called with the true last ones of truncated steps.
    """
    used = rollout.final_step >= 0
    if used.device.type == "cpu" and not used.any():
        return values[1:]
    final = value(tree_map(lambda part: part.flatten(0, 1), rollout.final_obs)).view_as(rollout.final_step)
    following = torch.cat([values[1:], torch.zeros_like(values[:1])])
    following.scatter_(0, torch.where(used, rollout.final_step, len(values) - 1), final.to(following.dtype))
    return following[:-1]


def gather_states(states: State, index: Tensor) -> State:
    """Return the states of all rows at the steps `index` `[S, B]`, each leaf `[S x B, ...]` from `[T, B, ...]`.

    An unused slot (-1) takes step 0.
    """
    rows = torch.arange(index.shape[1], device=index.device)
    return {name: leaf[index.clamp(min=0), rows].flatten(0, 1) for name, leaf in states.items()}


def learned_features(network: nn.Module, context: SequenceContext) -> Tensor:
    """Return the features `[L', N, F]` of the steps after the burn-in, with gradient from these steps only.

    Args:
        network: a `RecurrentNetwork`.
        context: of one minibatch, without the dimension U.
    """
    torso = cast(RecurrentNetwork, network)
    obs, start, state, burn_in = context.obs, context.episode_start, context.state, context.burn_in
    if burn_in:
        with torch.no_grad():
            head = tree_map(lambda part: part[:burn_in], obs)
            _, states = torso.unroll_with_states(head, state, start[:burn_in])
        state = {name: leaf[-1] for name, leaf in states.items()}
    learned = slice(burn_in, burn_in + len(context.last_step))
    return torso.unroll(tree_map(lambda part: part[learned], obs), state, start[learned])


@torch.no_grad()
def next_features(network: nn.Module, context: SequenceContext, next_obs: Obs) -> Tensor:
    """Return the features `[L', N, F]` of the observations after windows, given the state after these.

    Args:
        network: a `RecurrentNetwork`.
        context: of one minibatch, without the dimension U.
        next_obs: `[L', N, *obs]`, the true last observation where an episode was truncated.
    """
    torso = cast(RecurrentNetwork, network)
    _, states = torso.unroll_with_states(context.obs, context.state, context.episode_start)
    rows = tree_map(lambda part: part.flatten(0, 1), next_obs)
    features, _ = call_without_hooks(network, rows, gather_states(states, context.last_step), no_episode_start(rows))
    return features.unflatten(0, context.last_step.shape)
