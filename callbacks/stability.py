"""Stops a run whose numbers are no longer numbers."""

import math
from typing import Any, NoReturn

import torch
from lightning.pytorch import Callback, Trainer


class Diverged(RuntimeError):
    """Training produced values that are not finite; says where, and what to try."""


class Stability(Callback):
    """Stops the run when a logged `train/` value is not finite, and never lets such weights be saved.

    Looks at values that are on the host already, so it never waits for the device; at the weights only when a
    checkpoint is about to be written. The last good checkpoint stays as it was.

    Raises: Diverged.
    """

    acts_per_iteration = False

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Look at what was logged last."""
        for tag, value in pl_module.latest.items():
            if tag.startswith("train/") and not math.isfinite(value):
                raise_diverged(trainer, f"{tag} is {value}")

    def on_save_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Look at the weights before they replace good ones on the disk."""
        self.require_finite_weights(trainer, pl_module)

    def require_finite_weights(self, trainer: Trainer, pl_module: Any) -> None:
        """Raise Diverged if a weight is not finite."""
        for name, parameter in pl_module.named_parameters():
            if not torch.isfinite(parameter).all():
                raise_diverged(trainer, f"the weights {name} are not finite")


def require_stable(trainer: Any) -> None:
    """Raise Diverged if the Trainer has a `Stability` callback and the weights are not finite.

    For whatever writes files that belong to a checkpoint, before the first of them.
    """
    for callback in trainer.callbacks:
        if isinstance(callback, Stability):
            callback.require_finite_weights(trainer, trainer.lightning_module)


def raise_diverged(trainer: Any, what: str) -> NoReturn:
    """Raise Diverged in one sentence: what diverged, when, and what to try.

    Raises: NonFiniteError instead, where the environment returned such numbers first.
    """
    trainer.datamodule.require_finite()
    precision = "" if str(trainer.precision).startswith("32") else ", or --trainer.precision 32"
    raise Diverged(
        f"The run diverged by iteration {trainer.global_step}: {what}. The checkpoints written before are intact; look"
        " for such values in the environment's rewards and observations, or try a lower --model.learning_rate, a lower"
        f" --model.max_grad_norm{precision}."
    )
