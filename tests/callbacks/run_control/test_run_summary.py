import json
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.run_summary import RunSummary, flat, scores, table


def test_fit_ends_with_one_line_that_replays_the_best(make_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = RunCheckpoint()

    run = make_run(RunSummary(), checkpoint).fit()

    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Run ")]
    assert str(run.folder) in line
    assert f"eval/return_mean {float(checkpoint.best_model_score):.2f} ± " in line
    assert line.endswith(
        f"trainer.test(model, datamodule=data, ckpt_path='{checkpoint.best_model_path}', weights_only=True)"
    )


def test_tensorboard_holds_the_hyperparameters_and_a_real_hp_metric(make_run: Any) -> None:
    checkpoint = RunCheckpoint()

    run = make_run(RunSummary(), checkpoint).fit()

    events = EventAccumulator(str(run.folder)).Reload()
    (point,) = events.Scalars("hp_metric")
    assert (point.step, point.value) == (128, pytest.approx(float(checkpoint.best_model_score)))
    assert events.SummaryMetadata("_hparams_/experiment").plugin_data.plugin_name == "hparams"
    assert {"num_envs", "gamma", "learning_rate"} <= set(run.trainer.logger.hparams)


def test_test_prints_a_table_and_writes_metrics_into_the_run_folder(
    make_run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    first = make_run(RunCheckpoint(), iterations=2).fit()
    path = first.folder / "checkpoints" / "last.ckpt"
    run = make_run(RunSummary(), logger=False)

    run.trainer.test(run.module, run.data, ckpt_path=path, weights_only=True, verbose=False)

    metrics = json.loads((first.folder / "metrics.json").read_text(encoding="utf-8"))
    printed = capsys.readouterr().out
    assert metrics["checkpoint"] == str(path)
    assert metrics["episodes"] == 2 and metrics["return_mean"] == run.module.last_logged["eval/return_mean"]
    assert f"return    {metrics['return_mean']:.2f} ± {metrics['return_std']:.2f}   95 % interval [" in printed


def test_without_a_checkpoint_metrics_lie_in_the_root_folder(make_run: Any, tmp_path: Path) -> None:
    run = make_run(RunSummary(), logger=False)

    run.trainer.test(run.module, run.data, verbose=False)

    assert json.loads((tmp_path / "metrics.json").read_text(encoding="utf-8"))["checkpoint"] is None


def test_the_table_has_a_row_for_each_quantity() -> None:
    values = {"return_mean": 2.0, "return_std": 1.0, "return_interval": 0.5, "length_mean": 7.0, "episodes": 32.0}

    rows = table(values | {"food_mean": 3.0, "food_max": 4.0}).splitlines()

    assert rows == [
        "return    2.00 ± 1.00   95 % interval [1.50, 2.50]",
        "length    7.00",
        "episodes  32",
        "food      3.00   max 4.00",
    ]


def test_the_summary_names_the_environments_own_values() -> None:
    evaluation = {"eval/return_mean": 20.5, "eval/return_std": 1.0, "eval/length_mean": 9.0, "eval/food_mean": 21.0}

    assert scores(evaluation) == ", eval/return_mean 20.50 ± 1.00, eval/food_mean 21.00"
    assert scores({}) == ", never evaluated"
    assert scores({"dynamics/field_r2": 0.9912}) == ", dynamics/field_r2 0.991"


def test_settings_become_flat_and_plain() -> None:
    settings = {"gamma": 0.9, "network": {"class_path": "modules.networks.MLP"}, "optimizer": Path, "_private": 1}

    assert flat(settings | {"spaces": {"num_agents": 1}}) == {
        "gamma": 0.9,
        "network.class_path": "modules.networks.MLP",
        "optimizer": "Path",
    }
