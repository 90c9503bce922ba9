"""SAC with behavior cloning (`SACBC`), for stored data."""

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from datamodules.core.types import SpaceSpec
from modules.base.checks import check_values
from modules.networks.distributions import Categorical
from modules.sac.batch import SACBatch
from modules.sac.sac import SAC


class SACBC(SAC):
    """SAC whose policy is also drawn to the actions of the replay buffer.

    Policy loss: that of SAC + bc_coef mean|V| mean (mode - a)^2, for Discrete actions - log pi(a | s) instead of the
    square, where V is the soft value in the minibatch and a the stored action in [-1, 1]. Without this term critics
    overestimate actions that the data lacks, and the policy prefers these. Steps collected later are data, too.

    Args:
        spaces: observation and action space; on the command line it comes from the data.
        bc_coef: weight of the term, positive: the inverse of alpha in the source, where it is 2.5.
        sac: arguments of `SAC`.

    Source: Fujimoto and Gu 2021, arXiv:2106.06860, eq. 3 and 5 (TD3+BC).

    Raises: ConfigurationError for values out of range.
    """

    def __init__(self, spaces: SpaceSpec, bc_coef: float = 0.4, **sac: Any):
        super().__init__(spaces, **sac)
        check_values(bc_coef=bc_coef)
        self.bc_coef = bc_coef

    def actor_loss(self, batch: SACBatch, noise: Tensor | None, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of SAC plus the weighted distance to the stored actions, and the entropy `[N]`."""
        value, entropy = self.soft_value(self.critic, batch.obs, noise, batch.mask, alpha)
        policy = self.policy(batch.obs, batch.mask)
        if isinstance(policy, Categorical):
            distance = F.nll_loss(policy.log_probs, batch.action, reduction="none")
        else:
            distance = (policy.mode - batch.action).square().mean(-1)
        cloning = self.bc_coef * value.detach().abs().mean() * (batch.counts * distance).mean()
        return cloning - (batch.counts * value).mean(), entropy.detach()
