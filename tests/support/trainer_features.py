"""Try Lightning's callbacks and loggers in short runs.

`python -m tests.support.trainer_features` writes the table. The table is docs/trainer_features.md.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

import app.cli.main  # noqa: F401  (here, so that Lightning's log handler keeps a stream that outlives one run)
from app.__main__ import main

TABLE = Path(__file__).resolve().parents[2] / "docs" / "trainer_features.md"
CALLBACKS, LOGGERS = "lightning.pytorch.callbacks", "lightning.pytorch.loggers"
RUNS = {
    "ppo_cartpole": "num_envs=4 rollout_length=16 total_env_steps=256",
    "dqn_cartpole": "train_freq=16 batch_size=16 replay_ratio=1 capacity=400 learning_starts=16 total_env_steps=64",
    "sac_pendulum": "train_freq=4 batch_size=16 replay_ratio=1 capacity=400 learning_starts=16 total_env_steps=64",
}
"""Configs, and settings of their data that make runs of four iterations of them."""

LAST = "runs/run/version_0/checkpoints/last.ckpt"
HEAD = """# Lightning's callbacks and loggers

Each was tried in short runs of three configs by `python -m tests.support.trainer_features`, which writes this page.
*works*: the run ended well and the feature left what it is for. *refused*: in the sentence of the note, before anything
ran. *needs a package*: refused in a sentence that names the package to install, where it is not installed.

"""


class Tried(NamedTuple):
    """What came of a run: `works`, `refused`, `needs a package`, or what else; and the sentence of a refusal."""

    outcome: str
    note: str = ""


def saved(key: str) -> bool:
    """Whether the last checkpoint holds a key, or the state of a callback."""
    content = torch.load(LAST, weights_only=True)
    return key in content or any(name.startswith(key) for name in content["callbacks"])


def logged(word: str) -> bool:
    """Whether a column of the logger's file has a word in its name."""
    return word in next(Path("runs").rglob("metrics.csv")).read_text(encoding="utf-8").splitlines()[0]


def ended_early() -> bool:
    """Whether the run stopped after its first evaluation."""
    return torch.load(LAST, weights_only=True)["global_step"] == 2


def one_of(said: str) -> Callable[[str], bool]:
    """A look at whether a run printed a word."""
    return lambda printed: said in printed


Evidence = Callable[[str], bool]
WORKING: dict[str, tuple[dict[str, Any], Evidence]] = {
    "Callback": ({}, bool),
    "Checkpoint": ({}, bool),
    "DeviceStatsMonitor": ({}, lambda _: logged("DeviceStatsMonitor")),
    "EarlyStopping": (
        {"monitor": "eval/return_mean", "mode": "max", "stopping_threshold": -1e9},
        lambda _: ended_early(),
    ),
    "LambdaCallback": ({}, bool),
    "LearningRateMonitor": ({"log_momentum": True, "log_weight_decay": True}, lambda _: logged("lr-Adam")),
    "ModelCheckpoint": (
        {"dirpath": "kept", "every_n_train_steps": 1, "save_top_k": -1},
        lambda _: len(list(Path("kept").glob("*.ckpt"))) == 4,
    ),
    "ModelSummary": ({}, bool),
    "RichModelSummary": ({}, one_of("Trainable params")),
    "RichProgressBar": ({}, bool),
    "Timer": ({"duration": "00:00:10:00"}, lambda _: saved("Timer")),
    "TQDMProgressBar": ({}, one_of("Epoch 0")),
    "EMAWeightAveraging": ({"use_buffers": False}, lambda _: saved("averaging_state")),
    "WeightAveraging": ({"use_buffers": False}, lambda _: saved("averaging_state")),
}
"""Callbacks that work: their arguments, and what shows that they did, given what the run printed."""

REFUSED: dict[str, dict[str, Any]] = {
    "BackboneFinetuning": {},
    "BaseFinetuning": {},
    "BasePredictionWriter": {},
    "BatchSizeFinder": {},
    "GradientAccumulationScheduler": {"scheduling": {0: 2}},
    "LearningRateFinder": {},
    "ModelPruning": {"pruning_fn": "l1_unstructured"},
    "OnExceptionCheckpoint": {"dirpath": "kept"},
    "ProgressBar": {},
    "SpikeDetection": {},
    "StochasticWeightAveraging": {"swa_lrs": 0.1},
    "ThroughputMonitor": {"batch_size_fn": "torch.nn.Identity"},
}
"""Callbacks that are refused: arguments with which they can be made."""

KEEPING: dict[str, tuple[dict[str, Any], Evidence]] = {
    "CSVLogger": ({"save_dir": "runs", "name": "run"}, lambda _: logged("train/")),
    "CometLogger": ({}, bool),
    "LitLogger": ({}, bool),
    "Logger": ({}, bool),
    "MLFlowLogger": ({}, bool),
    "TensorBoardLogger": ({"save_dir": "runs", "name": "run"}, lambda _: any(Path("runs").rglob("events.*"))),
    "WandbLogger": ({"offline": True}, bool),
}
"""Loggers: their arguments and what shows that they worked."""


def features() -> Iterator[str]:
    """Yield the names of all features, callbacks first."""
    yield from sorted([*WORKING, *REFUSED])
    yield from sorted(KEEPING)


def tried(feature: str, config: str) -> Tried:
    """Run a config with a feature in an empty folder."""
    printed = StringIO()
    with (
        tempfile.TemporaryDirectory() as folder,
        chdir(folder),
        patch.object(sys, "argv", words(feature, config)),
        redirect_stdout(printed),
        redirect_stderr(printed),
    ):
        try:
            main()
            evidence = (WORKING | KEEPING)[feature][1]
            return Tried("works" if evidence(printed.getvalue()) else "has no effect")
        except SystemExit as end:
            sentence = printed.getvalue().strip().splitlines()[-1]
            kind = "needs a package" if "pip install" in sentence else "refused"
            return Tried(kind if end.code == 2 else f"ends with {end.code}", sentence)
        except Exception as error:
            return Tried(f"raises {type(error).__name__}", str(error))


def words(feature: str, config: str) -> list[str]:
    """The command line of a short run."""
    logger = feature if feature in KEEPING else "CSVLogger"
    callbacks = [{"class_path": "callbacks.RunCheckpoint"}]
    if feature not in KEEPING:
        arguments = WORKING[feature][0] if feature in WORKING else REFUSED[feature]
        callbacks.append({"class_path": f"{CALLBACKS}.{feature}", "init_args": arguments})
    made = {"class_path": f"{LOGGERS}.{logger}", "init_args": KEEPING[logger][0]}
    trainer = {"callbacks": json.dumps(callbacks), "logger": json.dumps(made), "log_every_n_steps": 1}
    trainer |= {"accelerator": "cpu", "val_check_interval": 2}
    settings = [f"--data.{setting}" for setting in [*RUNS[config].split(), "eval_episodes=2"]]
    return ["app", "fit", "--config", f"{config}.yaml", *settings, *(f"--trainer.{k}={v}" for k, v in trainer.items())]


def row(feature: str) -> str:
    """Return a feature's line of the table."""
    results = [tried(feature, config) for config in RUNS]
    notes = dict.fromkeys(result.note for result in results if result.note)
    return f"| {feature} | {' | '.join(result.outcome for result in results)} | {' '.join(notes)} |"


def table() -> str:
    """Try everything; return the page."""
    head = [f"| feature | {' | '.join(RUNS)} | note |", "|---|" + "---|" * (len(RUNS) + 1)]
    return HEAD + "\n".join([*head, *map(row, features())]) + "\n"


if __name__ == "__main__":
    os.environ.setdefault("COLUMNS", "120")
    TABLE.write_text(table(), encoding="utf-8")
