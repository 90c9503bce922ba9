"""EntropyAlarm: warn when a policy stays almost uniform."""

import math
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities import rank_zero_warn

from datamodules.core.arguments import check_ranges

ACTIONS, OPTIONS = "train/entropy", "option/master_entropy"


class EntropyAlarm(Callback):
    """Warn, once per run, when the policy's entropy stays near its maximum: training has no effect on the actions.

    The entropies of actions and of the choice of options are compared with those of uniform policies, after every log;
    only logged values are read, without synchronization. The entropy of a Gaussian that is not squashed (PPO with Box
    actions) has no maximum and is not checked.

    Args:
        fraction: of the maximum, above which the entropy counts as too high, in (0, 1].
        patience: logs in a row before the warning.
        after: fraction of the run before which no log is counted.

    Raises: ConfigurationError for a fraction or a patience out of range.
    """

    acts_per_iteration = False

    def __init__(self, fraction: float = 0.95, patience: int = 5, after: float = 0.25):
        check_ranges(
            "EntropyAlarm",
            ("fraction", fraction, 0 < fraction <= 1, "a fraction above 0, up to 1"),
            ("patience", patience, patience >= 1, "at least 1"),
        )
        self.fraction, self.patience, self.after = fraction, patience, after
        self.counts = {ACTIONS: 0, OPTIONS: 0}

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Check the entropies logged in this iteration, if any."""
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if trainer.global_step % every or pl_module.progress < self.after:
            return
        for tag, highest in max_entropies(pl_module).items():
            self.check(tag, pl_module.last_logged.get(tag, -math.inf), highest, remedy(pl_module, tag))

    def check(self, tag: str, entropy: float, highest: float, advice: str) -> None:
        """Count an entropy above the fraction of its maximum; warn when `patience` is first reached."""
        if self.counts[tag] >= self.patience:
            return
        self.counts[tag] = self.counts[tag] + 1 if entropy > self.fraction * highest else 0
        if self.counts[tag] == self.patience:
            rank_zero_warn(
                f"{tag} is {entropy:.4g}, more than {self.fraction:.0%} of its maximum {highest:.4g}, for"
                f" {self.patience} logs in a row: the policy is almost uniform. {advice}"
            )

    def state_dict(self) -> dict[str, Any]:
        """Return the counts."""
        return {"lasting": dict(self.counts)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore from `state_dict`."""
        self.counts |= state_dict["lasting"]


def max_entropies(pl_module: Any) -> dict[str, float]:
    """Return the entropies in nats of a uniform policy, by the tag under which the policy's own is logged."""
    entropies, options = {}, getattr(pl_module, "num_options", 1)
    if hasattr(pl_module, "max_entropy"):
        entropies[ACTIONS] = float(pl_module.max_entropy())
    elif pl_module.spaces["action_sizes"] and not pl_module.spaces["action_low"]:
        entropies[ACTIONS] = sum(map(math.log, pl_module.spaces["action_sizes"]))
    return entropies | ({OPTIONS: math.log(options)} if options > 1 else {})


def remedy(pl_module: Any, tag: str) -> str:
    """Return the settings that let the policy leave uniform actions."""
    if tag == OPTIONS:
        return "Lower the controller's entropy, or raise model.learning_rate."
    if hasattr(pl_module, "log_alpha"):
        return (
            "Lower model.init_temperature or the target entropy, or raise model.critic_learning_rate, by which the"
            " temperature falls."
        )
    return "Lower model.entropy_coef, or raise model.learning_rate."
