"""Watches options for collapse, and says aloud which kind it is and what to do about it."""

import math
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn

REMEDIES = {
    "usage": "Some options are hardly used: raise the controller's usage_weight or entropy, or take fewer options.",
    "length": "Options end almost at once: raise the controller's deliberation_margin, prior_weight or min_duration.",
    "information": "Options are chosen regardless of the state: lower the controller's entropy, or give the master a"
    " higher learning rate.",
    "divergence": "All options do the same: take fewer, lower model.alpha, or let each learn more from its own"
    " steps (the controller's update_mode).",
    "evaluation": "The greedy policy does nothing: compare with data.eval_greedy false, and look at option/select_*"
    " for an option that is always taken.",
}
"""What to try, by kind of collapse."""


class OptionAlarm(Callback):
    """Warns when options collapse, once for each time and kind, and logs `option/alarms`, the number of kinds at hand.

    A kind counts when it holds for `patience` logs (evaluations for the last kind) in a row, once a part `after` of the
    run is over:

    usage: an option runs in less than `usage` of the steps.   length: options last less than `length` times the
    model's `min_duration` on average.   information: the mutual information of state and option is under
    `information` of its most, log K.   divergence: the options' policies differ by less than `divergence` nats.
    evaluation: every evaluated episode has the same return, 0 or less than training reaches.

    Looks at logged values only, so it never waits for the device. One option cannot collapse.

    Args:
        usage: least share of the steps of an option; 0 switches this kind off.
        length: least mean duration of options, in units of the model's `min_duration`; 0 switches this kind off.
        information: least mutual information of state and option, as a part of log K; 0 switches this kind off.
        divergence: least divergence between the options' policies, in nats; 0 switches this kind off.
        patience: logs or evaluations in a row after which a kind counts.
        after: part of the run in which nothing counts yet.
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
        self.lasting: dict[str, int] = dict.fromkeys(REMEDIES, 0)
        self._evaluation: tuple[float, float] | None = None

    @property
    def alarms(self) -> list[str]:
        """The kinds of collapse at hand."""
        return [kind for kind, times in self.lasting.items() if times >= self.patience]

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Judge what was logged in this iteration, if anything was."""
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if trainer.global_step % every or not self._due(pl_module):
            return
        self.judge(self.collapsed(pl_module.latest, getattr(pl_module, "min_duration", 1)))
        pl_module.log_values({"option/alarms": float(len(self.alarms))})

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Judge an evaluation made while training."""
        if trainer.state.fn == TrainerFn.FITTING and self._due(pl_module):
            self.judge({"evaluation": self.idle(pl_module.latest)})

    def _due(self, pl_module: Any) -> bool:
        """Several options were logged, long enough into the run."""
        return "option/usage_1" in pl_module.latest and pl_module.progress >= self.after

    def collapsed(self, latest: dict[str, float], min_duration: int = 1) -> dict[str, str | None]:
        """By kind, what is wrong with the values logged last; None where nothing is."""
        options = sum(tag.removeprefix("option/usage_").isdigit() for tag in latest)
        bounds = {
            "usage": ("usage_min", self.usage),
            "length": ("length_mean", self.length * min_duration),
            "information": ("mutual_information", self.information * math.log(options)),
            "divergence": ("divergence_mean", self.divergence),
        }
        found: dict[str, str | None] = {}
        for kind, (name, bound) in bounds.items():
            value = latest.get(f"option/{name}", math.inf)
            found[kind] = f"option/{name} is {value:.3g}, under {bound:.3g}" if value < bound else None
        return found

    def idle(self, latest: dict[str, float]) -> str | None:
        """What is wrong with the evaluations: nothing varies, and the return is 0 or under what training reaches."""
        mean, std = latest["eval/return_mean"], latest["eval/return_std"]
        same = self._evaluation in (None, (mean, 0.0)) and std == 0.0
        self._evaluation = (mean, std)
        poor = mean == 0.0 or mean < latest.get("rollout/return_mean", -math.inf)
        return f"every evaluated episode returned {mean:.4g}" if same and poor else None

    def judge(self, found: dict[str, str | None]) -> None:
        """Count how long each kind has lasted; warn of those that have lasted long enough just now."""
        for kind, problem in found.items():
            self.lasting[kind] = self.lasting[kind] + 1 if problem else 0
            if problem and self.lasting[kind] == self.patience:
                rank_zero_warn(f"Options collapse ({kind}): {problem} for {self.patience} times. {REMEDIES[kind]}")

    def state_dict(self) -> dict[str, Any]:
        """How long each kind has lasted."""
        return {"lasting": dict(self.lasting), "evaluation": self._evaluation}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.lasting |= state_dict["lasting"]
        self._evaluation = None if state_dict["evaluation"] is None else tuple(state_dict["evaluation"])
