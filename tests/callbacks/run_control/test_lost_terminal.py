"""A terminal that is closed under a run, or a pipe whose reader has ended: the run saves and stops."""

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[3]
RUN = """
import signal, sys
from contextlib import nullcontext
from pathlib import Path
from lightning.pytorch import Callback, Trainer
from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.graceful_stop import GracefulStop
from callbacks.run_control.signal_watchdog import SignalWatchdog
from datamodules.core.signals import exits_on_signal
from datamodules.rollout import RolloutDataModule
from modules import PPO

class Begun(Callback):
    def on_train_batch_end(self, trainer, *_):
        Path("begun").touch()

as_program = sys.argv[1:] == ["program"]
with SignalWatchdog(grace=0) if as_program else nullcontext(), exits_on_signal() if as_program else nullcontext():
    data = RolloutDataModule("CartPole-v1", num_envs=2, rollout_length=8, total_env_steps=10**8)
    trainer = Trainer(
        accelerator="cpu", max_epochs=1, logger=False, limit_val_batches=0, enable_progress_bar=False, devices=1,
        callbacks=[Begun(), interrupt := GracefulStop(), RunCheckpoint()],
    )
    trainer.fit(PPO(data.spaces, update_epochs=1, num_minibatches=2), data)
    Path("hangup").write_text(str(signal.getsignal(signal.SIGHUP)))
    print("a terminal that is gone takes no text", flush=True)
    sys.exit(128 + interrupt.stopped_by)
"""


@contextmanager
def training(folder: Path, kind: str = "program", **streams: int) -> Iterator[subprocess.Popen[bytes]]:
    """A run that has ended its first iteration, of the program or of a script with a Trainer of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RUN, kind]
    with subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True, **streams) as process:
        deadline = time.monotonic() + 100
        while not (folder / "begun").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        try:
            yield process
        finally:
            process.kill()


def saved_iterations(folder: Path) -> int:
    return torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]


@pytest.mark.parametrize(
    ("kind", "again"),
    [
        ("program", False),
        ("script", True),
        pytest.param("program", True, marks=pytest.mark.fault),
        pytest.param("script", False, marks=pytest.mark.fault),
    ],
)
def test_a_run_whose_terminal_is_closed_saves_and_stops(tmp_path: Path, kind: str, again: bool) -> None:
    ours, theirs = pty.openpty()
    with training(tmp_path, kind, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.close(ours)
        process.send_signal(signal.SIGHUP)
        if again:
            time.sleep(0.01)
            process.send_signal(signal.SIGHUP)

        assert process.wait(100) == 129
    assert saved_iterations(tmp_path) > 0
    if kind == "script":  # whenever the second SIGHUP comes, also after Lightning has restored its handlers
        assert (tmp_path / "hangup").read_text() == str(signal.SIG_IGN)


def test_a_run_whose_output_nobody_reads_any_more_saves_and_stops(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    with training(tmp_path, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.close(ours)
        process.send_signal(signal.SIGINT)

        assert process.wait(100) == 130
    assert saved_iterations(tmp_path) > 0
