"""Metrics of the option updates; `usage_metrics` has those of their use."""

import torch
from torch import Tensor

from modules.functional.options import master_entropy

FIXED = (
    "critic_loss",
    "actor_loss",
    "master_loss",
    "termination_loss",
    "alpha_action",
    "alpha_option",
    "q_mean",
    "q_min",
    "entropy",
    "option/advantage_std",
    "option/advantage_positive",
    "option/master_entropy",
    "option/marginal_entropy",
    "option/mutual_information",
    "option/divergence_mean",
)
"""Names in the order of `update_metrics`; those with a group do not get the prefix `train/`."""


def metric_names(options: int) -> tuple[str, ...]:
    """Return `FIXED`, the mean beta and Q of every option, and the gradient norms."""
    each = [f"option/{name}_{option}" for name in ("beta", "q") for option in range(options)]
    return (*FIXED, *each, "critic_grad_norm", "actor_grad_norm")


def update_metrics(
    scalars: list[Tensor],
    q: Tensor,
    entropy: Tensor,
    log_master: Tensor,
    divergence: Tensor,
    beta: Tensor,
    advantage: Tensor,
) -> Tensor:
    """Return one update's metrics in the order of `metric_names` without the gradient norms; detached.

    The mutual information of state and option, H(mean mu) - mean H(mu), is over the states of one minibatch.

    Args:
        scalars: the first six of `FIXED`.
        q, entropy, advantage, log_master, beta: `[N, K]`.
    """
    conditional, usage = master_entropy(log_master).mean(), log_master.exp().mean(0)
    marginal = -torch.special.xlogy(usage, usage).sum()
    options = [advantage.std(), (advantage > 0).to(q.dtype).mean(), conditional, marginal, marginal - conditional]
    rest = [q.mean(), q.amin(), entropy.mean(), *options, divergence]
    return torch.cat([torch.stack([*scalars, *rest]), beta.mean(0), q.mean(0)]).detach()
