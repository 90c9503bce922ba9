"""Rollouts of an older policy (`data.policy_lag` 1), re-evaluated with the current networks."""

from typing import cast

import torch
from torch import Tensor

from datamodules.core.pytree import tree_map
from datamodules.core.types import PolicyInput, Rollout
from modules.networks.base import RecurrentNetwork
from modules.ppo.actor_critic import ActorCritic


@torch.no_grad()
def reevaluate(model: ActorCritic, rollout: Rollout) -> Rollout:
    """Re-evaluate a rollout of an older policy with the current networks.

    Replace the behaviour policy's distribution parameters, and with a shared torso its values, by the current ones.
    """
    obs, mask = tree_map(lambda part: part[:-1], rollout.obs), rollout.extras.get("action_mask")
    if model.recurrent:
        features = cast(RecurrentNetwork, model.network).unroll(
            model.normalized(obs), rollout.state, rollout.episode_start
        )
        current: dict[str, Tensor] = {"policy": model.actor(features, mask).parameters}
    else:
        mask = None if mask is None else mask.flatten(0, 1)
        rows = tree_map(lambda part: part.flatten(0, 1), obs)
        decision, _ = model.act(PolicyInput(rows, {}, rollout.episode_start.flatten(), mask), greedy=True)
        current = {
            name: column.view(*rollout.reward.shape, *column.shape[1:])
            for name, column in decision.extras.items()
            if name in ("policy", "value")
        }
    return rollout._replace(extras=rollout.extras | current)


def rollout_log_prob(model: ActorCritic, rollout: Rollout) -> Tensor:
    """Return log-probabilities `[T, B]` of the rollout's actions under the policy stored in it."""
    return model.actor.distribution(rollout.extras["policy"]).log_prob(rollout.action)
