"""Runs the program in this process, in an empty working directory, and says what came out."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import app.cli.main  # noqa: F401  (here, so that Lightning's log handler keeps a stream that outlives one test)
from app.__main__ import main

EXPERIMENT = """
model:
  class_path: tests.support.fake_algorithm.Walker
  init_args:
    learning_rate: 0.01
data:
  class_path: tests.support.fake_algorithm.Field
  init_args:
    env: CartPole-v1
trainer:
  accelerator: cpu
  enable_progress_bar: false
  enable_model_summary: false
  logger:
    class_path: lightning.pytorch.loggers.CSVLogger
    init_args: {save_dir: runs, name: small}
  callbacks:
    - class_path: lightning.pytorch.callbacks.ModelCheckpoint
      init_args: {monitor: eval/return_mean, mode: max, save_last: true, filename: "best-{step}"}
"""


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the experiment `small.yaml` in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("LEYDEN_TRUST", "tests")
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    (tmp_path / "small.yaml").write_text(EXPERIMENT)
    return tmp_path


@pytest.fixture(scope="session")
def cartpole_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder `runs` after a short run of `ppo_cartpole.yaml`."""
    folder, short = tmp_path_factory.mktemp("trained"), ("--data.total_env_steps=512", "--data.eval_episodes=2")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PL_GLOBAL_SEED", "0")
        patch.setattr(sys, "argv", ["app", "fit", "--config", "ppo_cartpole.yaml", *short, "--trainer.accelerator=cpu"])
        main()
    return folder / "runs"


@pytest.fixture
def trained(folder: Path, cartpole_runs: Path) -> Path:
    """The folder of that run, below the working directory."""
    shutil.copytree(cartpole_runs, folder / "runs")
    return folder / "runs" / "ppo_cartpole" / "version_0"


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `python -m app` with the given words."""

    def run_words(*words: str) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["app", *words])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return Outcome(code, *capsys.readouterr())

    return run_words
