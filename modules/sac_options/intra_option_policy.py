"""Policies and Q-values of K options at once."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules.core.pytree import tree_map
from datamodules.core.types import Obs
from modules.functional.options import categorical_divergence, gaussian_divergence
from modules.functional.sampling import MASKED_LOGIT
from modules.networks.distributions import Categorical
from modules.networks.heads.squashed_gaussian import SquashedGaussian

Policies = SquashedGaussian | Categorical


def policies(output: Policies, options: int, mask: Tensor | None = None, certain: Tensor | None = None) -> Policies:
    """Return distributions `[N, K, ...]` from the output of a head with K options.

    Args:
        mask: allowed actions, `[N, A]`.
        certain: the only action of every option, `[N, K]`, where scripts choose.
    """
    if isinstance(output, SquashedGaussian):
        shape = (output.mean.shape[0], options, -1)
        return SquashedGaussian(output.mean.view(shape), output.log_std.view(shape))
    logits = output.logits.unflatten(-1, (options, -1))
    if certain is not None:
        logits = torch.where(F.one_hot(certain, logits.shape[-1]).bool(), 0.0, MASKED_LOGIT)
    return Categorical(logits if mask is None else logits.masked_fill(~mask.unsqueeze(1), MASKED_LOGIT))


def gather_option(column: Tensor, option: Tensor) -> Tensor:
    """Return the entries `[N, ...]` of `column` `[N, K, ...]` at each row's option `[N]`."""
    index = option.view(-1, *[1] * (column.dim() - 1)).expand(-1, 1, *column.shape[2:])
    return column.gather(1, index).squeeze(1)


def q_of_option_actions(critic: nn.Module, obs: Obs, action: Tensor) -> Tensor:
    """Return Q_i(s, w, a_w) `[2, N, K]` of one action per option, `[N, K, dims]` in [-1, 1]."""
    options = action.shape[1]
    rows = tree_map(lambda part: part.unsqueeze(1).expand(-1, options, *part.shape[1:]).flatten(0, 1), obs)
    return critic(rows, action.flatten(0, 1)).unflatten(1, (-1, options)).diagonal(dim1=2, dim2=3)


def q_of_taken_action(critic: nn.Module, obs: Obs, action: Tensor, options: int) -> Tensor:
    """Return Q_i(s, w, a) `[2, N, K]` of the taken action: `[N, dims]` in [-1, 1], or discrete `[N]`."""
    if action.is_floating_point():
        return critic(obs, action)
    index = action.view(1, -1, 1, 1).expand(2, -1, options, 1)
    return critic(obs).unflatten(-1, (options, -1)).gather(-1, index).squeeze(-1)


@torch.no_grad()
def divergence(policy: Policies) -> Tensor:
    """Return the mean KL between the policies of two options, 0-d."""
    if isinstance(policy, SquashedGaussian):
        return gaussian_divergence(policy.mean, policy.log_std)
    return categorical_divergence(policy.log_probs)
