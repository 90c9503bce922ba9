"""AnnealedLoss: an auxiliary loss whose coefficients fall to 0 with the environment steps."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from datamodules.core.arguments import check_ranges
from modules.ppo.auxiliary.base import AuxiliaryLoss

if TYPE_CHECKING:
    from modules.ppo.ppo import PPO


class AnnealedLoss(AuxiliaryLoss):
    """Base of losses that are multiplied by `share`, which is 1 at first and falls linearly to 0.

    Args:
        constant_env_steps: environment steps of this run before `share` begins to fall.
        anneal_env_steps: environment steps in which `share` falls from 1 to 0; null: the rest of the run.

    Raises: ConfigurationError for values out of range.
    """

    share: Tensor

    def __init__(self, constant_env_steps: int, anneal_env_steps: int | None):
        check_ranges(
            type(self).__name__,
            ("constant_env_steps", constant_env_steps, constant_env_steps >= 0, "at least 0"),
            (
                "anneal_env_steps",
                anneal_env_steps,
                anneal_env_steps is None or anneal_env_steps >= 1,
                "at least 1, or null",
            ),
        )
        self.constant_env_steps, self.anneal_env_steps = constant_env_steps, anneal_env_steps

    def on_fit_start(self, model: "PPO") -> None:
        """Create the share on the model's device."""
        self.share = torch.ones((), device=model.device)
        self.total_env_steps = model.data.total_env_steps

    def update_schedule(self, env_steps: int) -> None:
        """Set the share of the coefficients that is left."""
        length = self.anneal_env_steps or max(self.total_env_steps - self.constant_env_steps, 1)
        self.share.fill_(min(max(1 - (env_steps - self.constant_env_steps) / length, 0.0), 1.0))
