"""OptionCollapseMonitor: warn when options collapse, with the kind of collapse and a remedy."""

import math
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn

from datamodules.core.files.printable import counted

REMEDIES = {
    "usage": "Some options are hardly used: raise the controller's usage_weight or entropy, or take fewer options.",
    "length": "Options end almost at once: raise the controller's deliberation_margin, prior_weight or min_duration.",
    "information": "Options are chosen regardless of the state: lower the controller's entropy, or give the master a"
    " higher learning rate.",
    "divergence": "All options do the same: take fewer, lower model.init_temperature, or let each learn more"
    " from its own steps (the controller's update_mode).",
    "evaluation": "The greedy policy does nothing: compare with data.eval_greedy false, and look at option/select_*"
    " for an option that is always taken.",
}
"""Remedies by kind of collapse."""


class OptionCollapseMonitor(Callback):
    """Warn when options collapse, once per occurrence and kind, and log `option/alarms`, the number of active kinds.

    A kind is active when it holds for `patience` logs (evaluations for the last kind) in a row, after the fraction
    `after` of the run:

    usage: an option is active in less than `usage` of the steps.   length: options last less than `length` times the
    model's `min_duration` on average.   information: the mutual information of state and option is below `information`
    times its maximum, log K.   divergence: the options' policies differ by less than `divergence` nats.   evaluation:
    all evaluated episodes have the same return, which is 0 or lower than in training.

    Only logged values are read, without synchronization. A single option cannot collapse.

    Args:
        usage: minimum fraction of steps per option; 0 disables this kind.
        length: minimum mean duration of options, in units of the model's `min_duration`; 0 disables this kind.
        information: minimum mutual information of state and option, as a fraction of log K; 0 disables this kind.
        divergence: minimum divergence between the options' policies, in nats; 0 disables this kind.
        patience: logs or evaluations in a row before a kind is active.
        after: fraction of the run before which no kind is counted.
    """

    acts_per_iteration = False

    def __init__(
        self,
        usage: float = 0.05,
        length: float = 1.5,
        information: float = 0.02,
        divergence: float = 0.01,
        patience: int = 3,
        after: float = 0.25,
    ):
        self.usage, self.length, self.information, self.divergence = usage, length, information, divergence
        self.patience, self.after = patience, after
        self.counts: dict[str, int] = dict.fromkeys(REMEDIES, 0)
        self._evaluation: tuple[float, float] | None = None

    @property
    def alarms(self) -> list[str]:
        """Return the active kinds of collapse."""
        return [kind for kind, times in self.counts.items() if times >= self.patience]

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Check the values logged in this iteration, if any."""
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if trainer.global_step % every or not self._due(pl_module):
            return
        self.update_counts(self.collapsed(pl_module.last_logged, getattr(pl_module, "min_duration", 1)))
        pl_module.log_values({"option/alarms": float(len(self.alarms))})

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Check an evaluation during training."""
        if trainer.state.fn == TrainerFn.FITTING and self._due(pl_module):
            self.update_counts({"evaluation": self.idle(pl_module.last_logged)})

    def _due(self, pl_module: Any) -> bool:
        """Return whether several options were logged and the fraction `after` of the run is done."""
        return "option/usage_1" in pl_module.last_logged and pl_module.progress >= self.after

    def collapsed(self, latest: dict[str, float], min_duration: int = 1) -> dict[str, str | None]:
        """Return a description of each kind's violation in the latest values; None for no violation."""
        options = sum(tag.removeprefix("option/usage_").isdigit() for tag in latest)
        bounds = {
            "usage": ("usage_min", self.usage),
            "length": ("length_mean", self.length * min_duration),
            "information": ("mutual_information", self.information * math.log(options)),
            "divergence": ("divergence_mean", self.divergence),
        }
        problems: dict[str, str | None] = {}
        for kind, (name, bound) in bounds.items():
            value = latest.get(f"option/{name}", math.inf)
            problems[kind] = f"option/{name} is {value:.3g}, under {bound:.3g}" if value < bound else None
        return problems

    def idle(self, latest: dict[str, float]) -> str | None:
        """Return a description if evaluations do not vary and the return is 0 or lower than in training; else None."""
        mean, std = latest["eval/return_mean"], latest["eval/return_std"]
        same = self._evaluation in (None, (mean, 0.0)) and std == 0.0
        self._evaluation = (mean, std)
        poor = mean == 0.0 or mean < latest.get("rollout/return_mean", -math.inf)
        return f"every evaluated episode returned {mean:.4g}" if same and poor else None

    def update_counts(self, problems: dict[str, str | None]) -> None:
        """Count the kinds that have a problem, and reset the others; warn of those that just reached `patience`."""
        for kind, problem in problems.items():
            self.counts[kind] = self.counts[kind] + 1 if problem else 0
            if problem and self.counts[kind] == self.patience:
                rank_zero_warn(
                    f"Options collapse ({kind}): {problem} for {counted(self.patience, 'time')}. {REMEDIES[kind]}"
                )

    def state_dict(self) -> dict[str, Any]:
        """Return the counts of each kind."""
        return {"lasting": dict(self.counts), "evaluation": self._evaluation}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore from `state_dict`."""
        self.counts |= state_dict["lasting"]
        self._evaluation = None if state_dict["evaluation"] is None else tuple(state_dict["evaluation"])
