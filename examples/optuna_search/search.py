"""Search the settings of PPO on CartPole with Optuna, in one process; the same command goes on after a kill."""

import argparse
from collections.abc import Sequence
from typing import Any

import optuna
import torch
from lightning.pytorch import Callback, Trainer, seed_everything

from datamodules import RolloutDataModule
from modules import PPO
from modules.manual_backward.callback import ManualBackward

METRIC = "eval/return_mean"
TOTAL_ENV_STEPS = 80_000  # 20 iterations of 128 environments and 32 steps
WARMUP_ITERATIONS = 5  # the first evaluation prunes nothing


class Pruning(Callback):
    """Report each evaluation to a trial, and stop the run after one that Optuna prunes.

    The run stops as at its end, so that environments are closed; `pruned` says whether it was stopped.
    """

    def __init__(self, trial: optuna.Trial):
        self.trial, self.pruned = trial, False

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Report the metric at the current iteration: pruners compare trials at equal steps, and env steps differ."""
        self.trial.report(float(trainer.callback_metrics[METRIC]), step=trainer.global_step)
        self.pruned = self.trial.should_prune()
        trainer.should_stop = trainer.should_stop or self.pruned


def objective(trial: optuna.Trial, total_env_steps: int = TOTAL_ENV_STEPS) -> float:
    """Train with the settings of a trial; return the last evaluation.

    Raises: TrialPruned for a run that was stopped.
    """
    seed_everything(1, verbose=False)
    data = RolloutDataModule(
        "CartPole-v1", backend="vector", num_envs=128, rollout_length=32, total_env_steps=total_env_steps
    )
    model = PPO(
        data.spaces,
        learning_rate=trial.suggest_float("learning_rate", 1e-3, 3e-2, log=True),
        learning_rate_schedule="linear",
        gamma=1 - trial.suggest_float("one_minus_gamma", 0.003, 0.1, log=True),
        gae_lambda=trial.suggest_float("gae_lambda", 0.8, 1.0),
        clip_range=trial.suggest_float("clip_range", 0.1, 0.4),
        update_epochs=trial.suggest_int("update_epochs", 1, 4),
        num_minibatches=trial.suggest_categorical("num_minibatches", [4, 8, 16]),
        entropy_coef=0.0,
    )
    pruning = Pruning(trial)
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary", "use_distributed_sampler"),
        False,
    )
    trainer = Trainer(
        accelerator="auto",
        devices=1,
        max_epochs=1,
        check_val_every_n_epoch=None,
        val_check_interval=5,  # iterations
        num_sanity_val_steps=0,
        callbacks=[ManualBackward(), pruning],
        **quiet,
    )
    trainer.fit(model, datamodule=data)
    if pruning.pruned:
        raise optuna.TrialPruned
    return float(trainer.callback_metrics[METRIC])


def resumed_study(name: str, storage: str, pruner: optuna.pruners.BasePruner) -> optuna.Study:
    """Return the study of this name, new or stored; trials that a kill interrupted are queued again."""
    study = optuna.create_study(
        study_name=name, storage=storage, direction="maximize", pruner=pruner, load_if_exists=True
    )
    for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        if trial.params:
            study.enqueue_trial(trial.params)
    return study


def main(words: Sequence[str] | None = None) -> optuna.Study:
    """Run the trials that a study lacks, and print the best."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20, help="trials of the whole study, finished or pruned")
    parser.add_argument("--study", default="ppo_cartpole", help="name of the study")
    parser.add_argument("--storage", default="sqlite:///search.db", help="database of studies")
    parser.add_argument("--total_env_steps", type=int, default=TOTAL_ENV_STEPS, help="environment steps of a trial")
    options = parser.parse_args(words)
    torch.set_num_threads(1)  # networks of 64 units are faster on one
    pruner = optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=WARMUP_ITERATIONS)
    study = resumed_study(options.study, options.storage, pruner)
    done = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED
    missing = options.trials - len(study.get_trials(deepcopy=False, states=done))
    study.optimize(lambda trial: objective(trial, options.total_env_steps), n_trials=max(0, missing))
    pruned = len(study.get_trials(deepcopy=False, states=[optuna.trial.TrialState.PRUNED]))
    print(f"{METRIC} {study.best_value:.1f} in trial {study.best_trial.number}, {pruned} pruned: {study.best_params}")
    return study


if __name__ == "__main__":
    main()
