"""StageCurriculum: play the stages of an environment one after the other, as the agent succeeds in each."""

import math
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn

from datamodules.core.arguments import check_ranges
from datamodules.core.errors import ConfigurationError

STATE = ("stage", "began_at", "best", "logs_without_rise")
"""Attributes that are saved in checkpoints."""


class StageCurriculum(Callback):
    """Train in the first stage of an environment, and in the next one after a promotion.

    The environment has the argument `stages`, such as `[1v1, 1v2, 2v2]` of Car-ball. A promotion happens at a log in
    which `monitor` is at least `threshold`, or, with `patience`, has not risen for so many logs, once a stage has
    lasted for `min_env_steps`. Episodes that are being played end in the old stage. Evaluations play the whole
    environment: set `data.eval_env_kwargs` to `{stages: null}`. The stage, from 1, is logged as `curriculum/stage`; a
    resumed run goes on in it. If no training log has `monitor`, there is a warning after an evaluation, once episodes
    have ended, or at the end of the run.

    Args:
        monitor: tag of a training log; that of Car-ball is the share of games that the agent's team has won.
        threshold: value of `monitor` that promotes.
        patience: logs without a new maximum of `monitor` in a stage that promote; null: only the threshold does.
        min_env_steps: environment steps of a stage before which there is no promotion, at least 0; the first logs of a
            stage report episodes of the one before.

    Raises: ConfigurationError for numbers out of range, and at the start of a fit for an environment without stages,
        for evaluations that play stages, and for rollouts that are collected ahead (`data.policy_lag`).
    """

    acts_per_iteration = False

    def __init__(
        self,
        monitor: str = "rollout/goals_mean",
        threshold: float = 0.6,
        patience: int | None = None,
        min_env_steps: int = 1_000_000,
    ):
        check_ranges(
            "StageCurriculum",
            ("patience", patience, patience is None or patience >= 1, "at least 1, or null"),
            ("min_env_steps", min_env_steps, min_env_steps >= 0, "at least 0"),
        )
        self.monitor, self.threshold, self.patience = monitor, threshold, patience
        self.min_env_steps = min_env_steps
        self.stage, self.began_at, self.best, self.logs_without_rise = 0, 0, -math.inf, 0
        self._is_logged = self._has_warned = False

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Set the stage, which a resumed run restores."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        env = innermost_env(data.collector.envs)
        if not getattr(env, "stages", ()):
            raise ConfigurationError(
                f"callbacks.StageCurriculum needs an environment with stages, and {data.env} has none: set stages in"
                " data.env_kwargs."
            )
        if data.eval_env_kwargs.get("stages"):
            raise ConfigurationError(
                "With callbacks.StageCurriculum evaluations would play the first stage only: set data.eval_env_kwargs"
                " to {stages: null}."
            )
        if "collect" in data.concurrent_phases:
            raise ConfigurationError("callbacks.StageCurriculum needs data.policy_lag 0: rollouts follow the stage.")
        self.stage = min(self.stage, len(env.stages) - 1)
        env.set_stage(self.stage)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Promote, if the newest log says so."""
        if trainer.global_step % trainer.log_every_n_steps:
            return
        env, value = innermost_env(trainer.datamodule.collector.envs), pl_module.last_training_log.get(self.monitor)
        self._is_logged |= value is not None
        due = pl_module.env_steps - self.began_at >= self.min_env_steps and self.stage < len(env.stages) - 1
        if trainer.strategy.broadcast(due and self._promotes(value)):
            self.stage, self.began_at = self.stage + 1, pl_module.env_steps
            self.best, self.logs_without_rise = -math.inf, 0
            env.set_stage(self.stage)
            rank_zero_info(
                f"Stage {self.stage + 1} of {len(env.stages)}, {env.stages[self.stage]}, from"
                f" {pl_module.env_steps:,} env steps on: {self.monitor} is {value:.3g}."
            )
        pl_module.log_values({"curriculum/stage": float(self.stage + 1)})

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Warn if the logs lack the value that promotes; a value of episodes comes when the first have ended."""
        if not self.monitor.startswith("rollout/") or "rollout/return_mean" in pl_module.last_training_log:
            self._warn_once_if_not_logged(pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Warn if no log of the run had the value that promotes."""
        self._warn_once_if_not_logged(pl_module)

    def _warn_once_if_not_logged(self, pl_module: Any) -> None:
        if pl_module.last_training_log and not self._is_logged and not self._has_warned:
            self._has_warned = True
            rollout_tags = ", ".join(sorted(tag for tag in pl_module.last_training_log if tag.startswith("rollout/")))
            rank_zero_warn(
                f"callbacks.StageCurriculum promotes nothing: no training log has its monitor {self.monitor}; set"
                f" monitor to a tag of the last log: {rollout_tags or ', '.join(sorted(pl_module.last_training_log))}."
            )

    def _promotes(self, value: float | None) -> bool:
        """Return whether a value of `monitor` promotes, and count logs without a rise."""
        if value is None:
            return False
        self.logs_without_rise = 0 if value > self.best else self.logs_without_rise + 1
        self.best = max(self.best, value)
        return value >= self.threshold or (self.patience is not None and self.logs_without_rise >= self.patience)

    def state_dict(self) -> dict[str, Any]:
        """Return the stage, and the progress in it."""
        return {name: getattr(self, name) for name in STATE}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore from `state_dict`."""
        for name in STATE:
            setattr(self, name, state_dict[name])


def innermost_env(envs: Any) -> Any:
    """Return the on-device environment of a vector environment; None for others."""
    return getattr(getattr(envs, "unwrapped", envs), "env", None)
