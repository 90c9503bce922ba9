"""L2InitLoss: squared distance of the weights to those at the start of the run."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from datamodules.core.errors import ConfigurationError
from modules.ppo.auxiliary.base import AuxiliaryLoss, ForwardPass
from modules.ppo.batch import PPOBatch

if TYPE_CHECKING:
    from modules.ppo.ppo import PPO


class L2InitLoss(AuxiliaryLoss):
    """Penalty on the distance of the weights to the initial ones, against the loss of plasticity.

    L = coef sum_i (theta_i - theta_i(0))^2, over all trained parameters

    The initial weights are those at the start of the fit. A checkpoint holds them, so that a resumed run keeps them; a
    run that adds this loss to a checkpoint without it is pulled towards the checkpoint's weights.

    Args:
        coef: coefficient of the squared distance, above 0.

    Raises: ConfigurationError for a coefficient that is not positive, and for a checkpoint of other networks.

    Source: Kumar et al. 2023, arXiv:2308.11958, section 4, "L2 Init".
    """

    name = "l2_init"
    metrics = ("distance",)

    def __init__(self, coef: float = 1e-4):
        if not coef > 0:
            raise ConfigurationError(f"L2InitLoss's coef is {coef}; it must be positive.")
        self.coef = coef
        self.pairs: list[tuple[nn.Parameter, Tensor]] = []
        self._names: list[str] = []
        self._restored: dict[str, Tensor] | None = None

    def on_fit_start(self, model: "PPO") -> None:
        """Store a copy of the weights, or take those of the checkpoint."""
        trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
        restored, self._restored = self._restored, None
        if restored is not None and {name: each.shape for name, each in restored.items()} != {
            name: each.shape for name, each in trained.items()
        }:
            raise ConfigurationError(
                "The checkpoint holds the initial weights of other networks for L2InitLoss: resume with the same ones."
            )
        initial = trained if restored is None else restored
        self._names = list(trained)
        self.pairs = [(each, initial[name].detach().to(each.device).clone()) for name, each in trained.items()]

    def loss(self, model: "PPO", batch: PPOBatch, forward: ForwardPass) -> tuple[Tensor, list[Tensor]]:
        """Return the penalty, and the distance."""
        squared = torch.stack([(parameter - initial).square().sum() for parameter, initial in self.pairs]).sum()
        return self.coef * squared, [squared.detach().sqrt()]

    def state_dict(self) -> dict[str, Any]:
        """Return the initial weights by name."""
        return {name: initial for name, (_, initial) in zip(self._names, self.pairs, strict=True)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the initial weights of a checkpoint."""
        self._restored = state
