"""RunSummary: print a summary of a finished run or test, and save its metrics."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, Trainer
from lightning.pytorch.loggers import TensorBoardLogger

from callbacks.run_control.atomic_write import atomic_write
from callbacks.run_control.checkpoint import is_last_iteration, run_folder
from callbacks.run_control.resume_commands import command
from datamodules.core.files.printable import printable

STATISTICS = ("mean", "std", "interval", "max")
"""Suffixes of an evaluation's tags."""


class RunSummary(Callback):
    """Print the folder, the best return and the replay command at the end of a run; save the metrics of a test.

    After fit: one line, and the hyperparameters with the best evaluation's return as TensorBoard's hp_metric. The last
    iteration is always evaluated, whatever `trainer.val_check_interval`, so that it is a candidate for the best.
    After test: a table, and `metrics.json` in the run folder of the tested checkpoint.
    """

    acts_per_iteration = False

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Request an evaluation of the last iteration: Lightning evaluates when a stop is requested."""
        if is_last_iteration(trainer):
            trainer.should_stop = True

    def on_fit_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Log the hyperparameters and print the summary."""
        checkpoint = trainer.checkpoint_callback
        evaluation: dict[str, float] = getattr(checkpoint, "best_evaluation", {})
        best = getattr(checkpoint, "best_model_path", "") or getattr(checkpoint, "last_model_path", "")
        score = evaluation.get("eval/return_mean")
        for logger in trainer.loggers:
            if isinstance(logger, TensorBoardLogger) and score is not None:
                settings = flat(trainer.datamodule.hparams) | flat(pl_module.hparams)  # type: ignore[attr-defined]
                logger.log_hyperparams(settings, {"hp_metric": score}, step=pl_module.env_steps)
        if best:
            pl_module.print(printable(summary(trainer, best, evaluation)))

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Print the table and write the metrics."""
        if not trainer.is_global_zero:
            return
        values = {tag.partition("/")[2]: value for tag, value in pl_module.last_logged.items()}
        path = run_folder(trainer.ckpt_path, trainer.default_root_dir) / "metrics.json"
        checkpoint = None if trainer.ckpt_path is None else str(trainer.ckpt_path)
        measured = {name: value if math.isfinite(value) else None for name, value in values.items()}
        pl_module.print(printable(table(values)))
        with atomic_write(path) as file:
            file.write(json.dumps({"checkpoint": checkpoint, **measured}, indent=2).encode() + b"\n")
        pl_module.print(printable(f"Written to {path}"))


def summary(trainer: Trainer, best: str, evaluation: Mapping[str, float]) -> str:
    """Return one line about a finished run; the best checkpoint of a resumed one may be in an earlier run's folder."""
    folder, run = run_folder(best, trainer.default_root_dir), trainer.log_dir
    kind = "best" if evaluation else "last"
    earlier = run is not None and Path(run).resolve() != folder.resolve()
    name = best if earlier else Path(best).name
    replay = command(trainer, "test", best)
    return f"Run {run if earlier else folder}; {kind} checkpoint {name}{scores(evaluation)}; replay: {replay}"


def scores(evaluation: Mapping[str, float]) -> str:
    """Return an evaluation's return and the environment's own metrics, by tag; all values if there is no return."""
    if not evaluation:
        return ", never evaluated"
    if "eval/return_mean" not in evaluation:
        return ", " + ", ".join(f"{tag} {value:.3f}" for tag, value in evaluation.items())
    parts = [f"eval/return_mean {evaluation['eval/return_mean']:.2f} ± {evaluation.get('eval/return_std', 0):.2f}"]
    tags = [tag for tag in evaluation if tag.endswith("_mean") and tag not in ("eval/return_mean", "eval/length_mean")]
    return ", " + ", ".join(parts + [f"{tag} {evaluation[tag]:.2f}" for tag in tags])


def table(values: Mapping[str, float]) -> str:
    """Format one row per metric of an evaluation: mean, and if available std, 95 % interval and maximum."""
    rows, names = [], dict.fromkeys(quantity(name) for name in values)
    width = max(map(len, names), default=0) + 2
    for name in names:
        mean, half = values.get(f"{name}_mean"), values.get(f"{name}_interval")
        row = f"{values[name]:.4f}".removesuffix(".0000") if mean is None else f"{mean:.2f}"
        row += f" ± {values[f'{name}_std']:.2f}" if f"{name}_std" in values else ""
        row += (
            f"   95 % interval [{mean - half:.2f}, {mean + half:.2f}]" if mean is not None and half is not None else ""
        )
        row += f"   max {values[f'{name}_max']:.2f}" if f"{name}_max" in values else ""
        rows.append(f"{name:<{width}}{row}")
    return "\n".join(rows)


def quantity(name: str) -> str:
    """Return the metric of a statistic: `return` for `return_std`."""
    stem, _, statistic = name.rpartition("_")
    return stem if statistic in STATISTICS else name


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested settings to plain values under dotted names, without derived and private ones."""
    flattened: dict[str, Any] = {}
    for key, value in settings.items():
        if key == "spaces" or str(key).startswith("_"):
            continue
        if isinstance(value, Mapping):
            flattened |= flat(value, f"{prefix}{key}.")
        elif isinstance(value, bool | int | float | str):
            flattened[f"{prefix}{key}"] = value
        else:
            flattened[f"{prefix}{key}"] = getattr(value, "__qualname__", str(value))
    return flattened
