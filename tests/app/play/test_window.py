"""The window shows frames in real time, ends the program when it is closed, and is refused without a display."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.play.window import Window
from datamodules.core.errors import ConfigurationError
from tests.app.conftest import Run

FRAME = np.full((40, 60, 3), 255, dtype=np.uint8)
SHORT = ["--data.total_env_steps=512", "--data.eval_episodes=2", "--trainer.accelerator=cpu"]

linux = pytest.mark.skipif(sys.platform != "linux", reason="only X11 runs without a screen")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A display in memory, one for all tests: Tk keeps its connection, and ends the program if it breaks."""
    if shutil.which("Xvfb") is None:
        pytest.skip("needs Xvfb")
    read, write = os.pipe()
    process = subprocess.Popen(["Xvfb", "-displayfd", str(write)], pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    with os.fdopen(read) as said:
        yield f":{said.readline().strip()}"
    process.terminate()
    process.wait()


@pytest.fixture
def display(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", server)


@pytest.fixture
def window(display: None) -> Iterator[Window]:
    shown = Window(fps=20)
    yield shown
    shown.close()


@linux
def test_frames_are_shown_in_real_time(window: Window) -> None:
    began = time.monotonic()

    for _ in range(5):
        window.add(FRAME)

    assert time.monotonic() - began >= 4 / 20  # the first is due when the window opens
    assert (window.root.winfo_width(), window.root.winfo_height()) == (62, 42)


@linux
def test_a_closed_window_ends_the_program(window: Window) -> None:
    window.root.after(10, window.root.tk.call, *window.root.protocol("WM_DELETE_WINDOW").split())

    with pytest.raises(SystemExit) as ended:
        for _ in range(100):
            window.add(FRAME)

    assert ended.value.code == 0


@linux
def test_without_a_display_a_video_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)

    with pytest.raises(ConfigurationError, match=r"cannot be opened .* write a video instead"):
        Window(fps=20)


@linux
def test_episodes_are_played_in_a_window(display: None, folder: Path, run: Run) -> None:
    assert run("fit", "--config", "ppo_cartpole.yaml", *SHORT).code == 0

    said = run("play", "--window", "--episodes", "2", "--max_steps", "5")

    assert said.code == 0 and "episode 2: 5 steps, return 5" in said.out and "Video" not in said.out
    assert not [*folder.rglob("*.mp4")]
