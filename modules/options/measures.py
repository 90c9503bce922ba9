"""What the updates of options measure, beside what options do (`statistics`)."""

import torch
from torch import Tensor

from modules.functional.options import master_entropy

FIXED = (
    "critic_loss",
    "actor_loss",
    "master_loss",
    "termination_loss",
    "q_mean",
    "q_min",
    "entropy",
    "alpha_action",
    "alpha_option",
    "critic_grad_norm",
    "actor_grad_norm",
    "option/advantage_std",
    "option/advantage_positive",
    "option/master_entropy",
    "option/marginal_entropy",
    "option/mutual_information",
    "option/divergence_mean",
)
"""Names in the order of `measures`; those of options go without the `train/` of the others."""


def names(options: int) -> tuple[str, ...]:
    """`FIXED`, and for every option the mean of its beta and of its Q."""
    each = range(options)
    return (*FIXED, *(f"option/beta_{option}" for option in each), *(f"option/q_{option}" for option in each))


def measures(
    losses: list[Tensor],
    q: Tensor,
    log_prob: Tensor,
    others: list[Tensor],
    advantage: Tensor,
    log_master: Tensor,
    divergence: Tensor,
    beta: Tensor,
) -> Tensor:
    """One update's numbers, in the order of `names`; nothing of it takes a gradient.

    The mutual information of state and option, H(mean mu) - mean H(mu), is that of the states of one minibatch.

    Args:
        losses: of critics, actor, master and terminations.
        q, log_prob, advantage, log_master, beta: `[N, K]`.
        others: both temperatures, then the gradient norms of critics and actor.
    """
    conditional = master_entropy(log_master).mean()
    usage = log_master.exp().mean(0)
    marginal = -torch.special.xlogy(usage, usage).sum()
    options = [advantage.std(), (advantage > 0).to(q.dtype).mean(), conditional, marginal, marginal - conditional]
    scalars = [*losses, q.mean(), q.amin(), -log_prob.mean(), *others, *options, divergence]
    return torch.cat([torch.stack(scalars), beta.mean(0), q.mean(0)]).detach()
