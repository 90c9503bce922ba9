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

from tests.support.forked_programs import ForkedPopen

ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def training(folder: Path, kind: str, start: type[subprocess.Popen], **streams: int) -> Iterator[subprocess.Popen]:
    """A run that has ended its first iteration, with the handlers of the program or as a script's Trainer."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.support.lost_terminal_run", kind]
    with start(command, cwd=folder, env=environment, start_new_session=True, **streams) as process:
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
    start = ForkedPopen if kind == "program" and not again else subprocess.Popen
    with training(tmp_path, kind, start, stdin=theirs, stdout=theirs, stderr=theirs) as process:
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
    with training(tmp_path, "program", ForkedPopen, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.close(ours)
        process.send_signal(signal.SIGINT)

        assert process.wait(100) == 130
    assert saved_iterations(tmp_path) > 0
