"""Stops a run whose numbers are no longer numbers, or whose policy cannot learn any more."""

import math
from typing import Any, NoReturn

import torch
from lightning.pytorch import Callback, Trainer

MAX_KL = 100.0
"""Nats that an update may move the policy by. Healthy iterations of PPO move it by 0.001 to 0.1; a likelihood ratio of
e^100 is no learning step."""

NO_ENTROPY, STUCK_LOGS = 1e-6, 10
"""Nats of entropy that count as none, and the logs in a row after which a policy without entropy counts as stuck."""


class Diverged(RuntimeError):
    """Training produced values that are not finite, or a policy that cannot learn; says where, and what to try."""


class Stability(Callback):
    """Stops the run when a logged `train/` value is not finite or says that learning is over; never saves NaN weights.

    Learning is over where the policy moved by more than `MAX_KL` nats in an iteration (`train/approx_kl`), and where
    its entropy is zero (`train/entropy` within `NO_ENTROPY` nats) while `rollout/return_mean` stays the same number
    for `STUCK_LOGS` logs in a row, of those that report one: a learning rate much too large can leave finite weights.

    Looks at values that are on the host already, so it never waits for the device; at the weights only when a
    checkpoint is about to be written. The last good checkpoint stays as it was.

    Raises: Diverged.
    """

    acts_per_iteration = False

    def __init__(self) -> None:
        self._judged: dict[str, float] = {}
        self._return, self._stuck = math.nan, 0

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Look at what was logged last."""
        for tag, value in pl_module.latest.items():
            if tag.startswith("train/") and not math.isfinite(value):
                raise_diverged(trainer, f"{tag} is {value}")
        if pl_module.last_log is not self._judged:
            self._judged = pl_module.last_log
            self._judge(trainer, self._judged)

    def _judge(self, trainer: Trainer, log: dict[str, float]) -> None:
        """Look at one training log.

        Raises: Diverged.
        """
        if abs(log.get("train/approx_kl", 0.0)) > MAX_KL:
            moved = f"{log['train/approx_kl']:.3g} nats in an iteration, more than {MAX_KL:g}"
            raise_diverged(trainer, f"train/approx_kl says that the policy moved by {moved}")
        entropy, return_ = log.get("train/entropy"), log.get("rollout/return_mean")
        if entropy is None or return_ is None:
            return
        before, self._return = self._return, return_
        if abs(entropy) > NO_ENTROPY:
            self._stuck = 0
            return
        self._stuck = self._stuck + 1 if return_ == before else 1
        if self._stuck >= STUCK_LOGS:
            raise_diverged(
                trainer,
                f"train/entropy was 0 and rollout/return_mean {return_:g} in {STUCK_LOGS} logs in a row, so nothing is"
                " learned any more",
            )

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
