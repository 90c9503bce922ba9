"""DivergenceGuard: stop a run with non-finite values or a policy that can no longer learn."""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
from lightning.pytorch import Callback, Trainer

MAX_KL = 100.0
"""Maximum KL divergence of an iteration in nats; iterations of PPO that learn have 0.001 to 0.1."""

NO_ENTROPY, STUCK_LOGS = 1e-6, 10
"""Entropy in nats below which it counts as zero, and the logs in a row after which such a policy counts as stuck."""

KEPT_GAIN = 0.9
"""Share of the rise in return that a policy without entropy must keep to count as solved rather than collapsed."""


class TrainingDiverged(RuntimeError):
    """Error for non-finite training values or a policy that cannot learn; its message says where, and what to try."""


def not_finite(values: Mapping[str, float]) -> str:
    """Return which value of training is not finite; empty if none."""
    reasons = (f"{tag} is {value}" for tag, value in values.items() if tag[:6] == "train/" and not math.isfinite(value))
    return next(reasons, "")


class CollapseDetector:
    """Detector of a policy of one agent that can no longer learn, from its training logs in their order.

    Attributes:
        lowest, highest: range of the returns logged while the policy had entropy.
    """

    def __init__(self) -> None:
        self._last_return, self._stuck_logs = math.nan, 0
        self.lowest, self.highest = math.inf, -math.inf

    def check(self, log: Mapping[str, float]) -> str:
        """Return why learning is impossible after one more log; empty if it is not."""
        if abs(log.get("train/approx_kl", 0.0)) > MAX_KL:
            moved = f"{log['train/approx_kl']:.3g} nats in an iteration, more than {MAX_KL:g}"
            return f"train/approx_kl says that the policy moved by {moved}"
        entropy, return_ = log.get("train/entropy"), log.get("rollout/return_mean")
        if entropy is None or return_ is None:
            return ""
        previous, self._last_return = self._last_return, return_
        if abs(entropy) > NO_ENTROPY:
            self._stuck_logs = 0
            self.lowest, self.highest = min(self.lowest, return_), max(self.highest, return_)
            return ""
        self._stuck_logs = self._stuck_logs + 1 if return_ == previous else 1
        if self._stuck_logs < STUCK_LOGS or not self._lost_its_gain(return_):
            return ""
        return (
            f"train/entropy was 0 and rollout/return_mean {return_:g} in {STUCK_LOGS} logs in a row, after returns"
            f" from {self.lowest:g} to {self.highest:g}, so nothing is learned any more"
        )

    def _lost_its_gain(self, return_: float) -> bool:
        """Return whether a return is too low for a task that was solved; False if there never was entropy."""
        return return_ <= self.lowest + KEPT_GAIN * (self.highest - self.lowest)


class DivergenceGuard(Callback):
    """Stop the run when a logged `train/` value is not finite or learning is impossible; never save NaN weights.

    Learning is impossible if the policy changed by more than `MAX_KL` nats in an iteration (`train/approx_kl`), or if
    it collapsed: its entropy became zero (`train/entropy` within `NO_ENTROPY` nats) while `rollout/return_mean` is
    constant for `STUCK_LOGS` logs in a row that report one. A learning rate that is far too large can leave finite
    weights. A policy that is deterministic because it solved its task goes on: its return is higher than the lowest
    that was logged while there was entropy, by more than `KEPT_GAIN` of the range of these returns. So does one that
    had no entropy from the start. A resumed run knows the returns logged before.

    Every agent of a population is checked by its own log; one that diverged ends the run.

    Only values on the host are read, without synchronization, and the weights only before a checkpoint is written. The
    last valid checkpoint is kept.

    Raises: TrainingDiverged.
    """

    acts_per_iteration = False

    def __init__(self) -> None:
        self._checked_log: dict[str, float] = {}
        self._detectors: defaultdict[str, CollapseDetector] = defaultdict(CollapseDetector)

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Check the values logged last."""
        if pl_module.last_training_log is not self._checked_log:
            self._checked_log = pl_module.last_training_log
            for name, log in pl_module.metric_logger.by_agent(self._checked_log).items():
                if reason := not_finite(log) or self._detectors[name].check(log):
                    raise_diverged(trainer, f"{reason} (the agent of {name})" if name else reason)
        if reason := not_finite(pl_module.last_logged):
            raise_diverged(trainer, reason)

    def state_dict(self) -> dict[str, Any]:
        """Return the range of the returns logged while the policy had entropy, of a single agent."""
        return {"lowest": self._detectors[""].lowest, "highest": self._detectors[""].highest}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the range of returns."""
        self._detectors[""].lowest, self._detectors[""].highest = state_dict["lowest"], state_dict["highest"]

    def on_save_checkpoint(self, trainer: Trainer, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Check the weights before they replace valid ones on the disk."""
        self.require_finite_weights(trainer, pl_module)

    def require_finite_weights(self, trainer: Trainer, pl_module: Any) -> None:
        """Raise TrainingDiverged if a weight is not finite."""
        for name, parameter in pl_module.named_parameters():
            if not torch.isfinite(parameter).all():
                raise_diverged(trainer, f"the weights {name} are not finite")


def require_stable(trainer: Any) -> None:
    """Raise TrainingDiverged if the Trainer has a `DivergenceGuard` callback and the weights are not finite.

    Called before the first file of a checkpoint is written.
    """
    for callback in trainer.callbacks:
        if isinstance(callback, DivergenceGuard):
            callback.require_finite_weights(trainer, trainer.lightning_module)


def raise_diverged(trainer: Any, what: str) -> NoReturn:
    """Raise TrainingDiverged with one sentence: what diverged, when, and what to try.

    Raises: NonFiniteError instead, if the environment returned such values first.
    """
    trainer.datamodule.check_finite()
    precision = "" if str(trainer.precision).startswith("32") else ", or --trainer.precision 32"
    raise TrainingDiverged(
        f"The run diverged by iteration {trainer.global_step}: {what}. The checkpoints written before are intact; look"
        " for such values in the environment's rewards and observations, or try a lower --model.learning_rate, a lower"
        f" --model.max_grad_norm{precision}."
    )
