"""Learning from a rollout that an older policy collected.

Two ratios take part then, and they are kept apart: that of the policy before the update to the one that acted corrects
the advantages and the value targets (V-trace, Espeholt et al. 2018, arXiv:1802.01561), and that of the policy within
the update to the one before it is what PPO clips, as ever (Hilton et al. 2022, arXiv:2110.00641, section 3). To clip
the ratio to the policy that acted would punish the lag itself.
"""

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from datamodules.types import Rollout
from modules.networks.base import RecurrentNetwork

if TYPE_CHECKING:
    from modules.ppo import PPO


@torch.no_grad()
def reconsidered(model: "PPO", rollout: Rollout) -> Rollout:
    """The rollout with the policy and, from a shared torso, the value of now in the place of the older ones."""
    obs, mask = rollout.obs[:-1], rollout.extras.get("action_mask")
    if model.recurrent:
        features = cast(RecurrentNetwork, model.network).unroll(model.normalized(obs), rollout.state, rollout.reset)
        found = {"policy": model.actor(features, mask).parameters}
    else:
        flat = None if mask is None else mask.flatten(0, 1)
        decision, _ = model.act(obs.flatten(0, 1), {}, rollout.reset.flatten(), mask=flat, greedy=True)
        known = {name: column for name, column in decision.extras.items() if name in ("policy", "value")}
        found = {name: column.view(*obs.shape[:2], *column.shape[1:]) for name, column in known.items()}
    return rollout._replace(extras=rollout.extras | found)


def log_prob_of(model: "PPO", rollout: Rollout) -> Tensor:
    """Log-probabilities `[T, B]` of what was done, by the policy that the rollout holds."""
    return model.actor.distribution(rollout.extras["policy"]).log_prob(rollout.action)
