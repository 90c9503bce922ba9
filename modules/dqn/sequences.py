"""Outputs of a recurrent Q-network for sequences from a replay: of their steps, and after their windows."""

import torch
from torch import Tensor

from datamodules.core.pytree import tree_map
from datamodules.core.types import Obs, SequenceContext
from modules.base.bootstrap import gather_states
from modules.networks.base import no_episode_start
from modules.networks.heads.q_value import QNetwork


def learned_outputs(network: QNetwork, context: SequenceContext) -> Tensor:
    """Return the outputs `[L', N, actions, K]` of the steps after the burn-in, with gradient from these steps only.

    Args:
        context: of one minibatch, without the dimension U.
    """
    obs, start, state, burn_in = context.obs, context.episode_start, context.state, context.burn_in
    if burn_in:
        with torch.no_grad():
            _, states = network.unroll(tree_map(lambda part: part[:burn_in], obs), state, start[:burn_in])
        state = {name: leaf[-1] for name, leaf in states.items()}
    learned = slice(burn_in, burn_in + len(context.last_step))
    return network.unroll(tree_map(lambda part: part[learned], obs), state, start[learned])[0]


@torch.no_grad()
def next_outputs(network: QNetwork, context: SequenceContext, next_obs: Obs) -> Tensor:
    """Return the outputs `[L', N, actions, K]` of the observations after windows, given the state after these.

    Args:
        context: of one minibatch, without the dimension U.
        next_obs: `[L', N, *obs]`, the true last observation where an episode was truncated.
    """
    _, states = network.unroll(context.obs, context.state, context.episode_start)
    rows = tree_map(lambda part: part.flatten(0, 1), next_obs)
    output, _ = network.step(rows, gather_states(states, context.last_step), no_episode_start(rows))
    return output.unflatten(0, context.last_step.shape)
