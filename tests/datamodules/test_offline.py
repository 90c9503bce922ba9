"""Runs on what was stored: nothing acts, and whatever looks on can do without."""

from pathlib import Path

import lightning
import pytest
from lightning.pytorch import Callback

from callbacks.performance.compile import Compile
from callbacks.performance.execution_summary import ExecutionSummary
from callbacks.performance.progress_bar import TrainingProgress
from callbacks.performance.thread_tuner import ThreadTuner
from callbacks.performance.throughput import Throughput
from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.divergence_guard import DivergenceGuard
from callbacks.run_control.graceful_stop import GracefulStop
from callbacks.run_control.run_summary import RunSummary
from datamodules.offline import OfflineSequenceDataModule
from modules.active_dynamics.active_dynamics import ActiveDynamics
from modules.active_dynamics.observed_model import FullyObservedModel
from modules.networks.latent import MLPDynamics
from tests.support.dynamics_fixtures import Spring
from tests.support.small_runs import trainer, weights_hash


def learned(root: Path, *callbacks: Callback, ckpt_path: Path | None = None, iterations: int = 8) -> ActiveDynamics:
    """A small model of pieces of eight recorded sequences."""
    lightning.seed_everything(1, verbose=False)
    steps = iterations * 4 * 10
    data = OfflineSequenceDataModule(
        "tests.support.dynamics_fixtures.Spring",
        sequences=8,
        steps=60,
        total_env_steps=steps,
        batch_size=4,
        sequence_length=10,
        num_val_sequences=3,
    )
    model = ActiveDynamics(data.spaces, FullyObservedModel(MLPDynamics(dt=Spring.dt, noise=0.05)), learning_rate=1e-2)
    bar = any(isinstance(callback, TrainingProgress) for callback in callbacks)
    run = trainer(root, *callbacks, val_check_interval=4, enable_progress_bar=bar)
    run.fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    return model


def test_every_callback_of_a_run_does_without_a_collector(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("callbacks.performance.thread_tuner.most_threads", lambda ranks: 2)
    watching = [ExecutionSummary(), TrainingProgress(), Throughput(), DivergenceGuard(), RunSummary()]

    with caplog.at_level("INFO"):
        model = learned(
            tmp_path, ThreadTuner(), Compile(), GracefulStop(), *watching, RunCheckpoint("dynamics/field_r2")
        )

    assert "Torch computes on 1 thread: nothing is collected, so there is no policy call to time." in caplog.messages
    out = capsys.readouterr().out
    assert "none, learning from stored data" in out and "update eager" in out
    assert "rows a policy call" not in out
    assert model.global_step == 8 and model.last_logged["time/env_steps_per_s"] > 0


def test_a_resumed_run_draws_what_one_that_went_on_would_have_drawn(tmp_path: Path) -> None:
    whole = learned(tmp_path / "whole")
    learned(tmp_path / "part", RunCheckpoint("dynamics/field_r2"), iterations=4)

    (last,) = (tmp_path / "part").rglob("last.ckpt")

    assert weights_hash(learned(tmp_path / "rest", ckpt_path=last)) == weights_hash(whole)
