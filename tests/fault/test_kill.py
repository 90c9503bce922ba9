"""kill -9 at random moments of runs that save every iteration: `last` always has its replay."""

import os
import random
import signal
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import lightning
import pytest
from lightning.pytorch import Callback

from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.divergence_guard import DivergenceGuard
from datamodules.buffers.replay_files import read_replay, replay_name
from datamodules.core.files.run_checkpoints import load_checkpoint
from tests.fault import print_count
from tests.oracles.sac import box_data, small_sac
from tests.support.replay_fixtures import replay_data, small_dqn
from tests.support.small_runs import trainer

KILLS = 30
LONG = {"total_env_steps": 10_000_000, "learning_starts": 64}
KINDS: dict[str, Any] = {
    "DQN": (partial(replay_data, **LONG), small_dqn),
    "SAC": (partial(box_data, **LONG), small_sac),
}


class FirstReplay(Callback):
    """Writes into a file how many vector steps went into the replay by the end of the first iteration."""

    def __init__(self, path: Path):
        self.path = path

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        if not self.path.exists():
            self.path.write_text(str(trainer.datamodule.dataset.replay_id[1]))


def train(kind: str, root: Path, told: Path) -> None:
    """Train until killed, and save every iteration; from `last` if there is one."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 1), os.dup2(devnull, 2)
    lightning.seed_everything(1, verbose=False)
    make_data, make_model = KINDS[kind]
    data, last = make_data(), root / "checkpoints" / "last.ckpt"
    callbacks = [DivergenceGuard(), FirstReplay(told), RunCheckpoint(every_n_iterations=1)]
    run = trainer(root, *callbacks, limit_val_batches=0)
    run.fit(make_model(data), datamodule=data, ckpt_path=last if last.exists() else None, weights_only=True)


def wait_for(path: Path, seconds: float = 120) -> None:
    """Wait until a file is there."""
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} is not there after {seconds} s"
        time.sleep(0.01)


def saved_steps(root: Path) -> int | None:
    """Vector steps of the replay that belongs to `last`; None if it is not there, or another one."""
    folder = root / "checkpoints"
    (state,) = (value for key, value in load_checkpoint(folder / "last.ckpt").items() if key == "ReplayDataModule")
    identity = state["ranks"][0]["replay"]["identity"]
    replay = read_replay(folder / replay_name(0, identity), identity)
    return None if replay is None or int(replay["ring"]["counts"][0]) != identity[1] else identity[1]


@pytest.mark.fault
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_kill_last_has_its_replay(kind: str, tmp_path: Path) -> None:
    held, steps, draw = 0, 0, random.Random(kind)

    for kill in range(KILLS):
        told, added = tmp_path / f"told-{kill}", KINDS[kind][0]().train_freq
        child = get_context("fork").Process(target=train, args=(kind, tmp_path, told))
        child.start()
        wait_for(told)
        wait_for(tmp_path / "checkpoints" / "last.ckpt")
        swept = len([*tmp_path.rglob("*.unfinished")]) <= 2  # only those the living child writes
        time.sleep(draw.uniform(0, 0.3))
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        resumed = int(told.read_text() or 0) == (steps or 0) + added
        steps = saved_steps(tmp_path) or 0
        held += swept and resumed and steps > 0

    print_count(f"kill -9 of {kind} while saving every iteration", held, KILLS)
    assert held == KILLS
