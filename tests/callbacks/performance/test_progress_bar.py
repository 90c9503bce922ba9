import io
import re
import sys
from typing import Any

import pytest
from lightning.pytorch import Callback

from callbacks.performance.progress_bar import TrainingProgress


class Terminal(io.StringIO):
    """A standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_without_a_terminal_it_prints_whole_lines(make_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(TrainingProgress(line_every_s=0), iterations=4, enable_progress_bar=True).fit()

    lines = [line for line in capsys.readouterr().out.splitlines() if "env steps" in line]

    assert len(lines) == 5
    assert re.search(r"^ 50%  64 of 128 env steps, [\d,]+/s, .*left$", lines[1])
    assert re.search(r"^100%  128 of 128 env steps, .*eval [\d.]+, .*in all$", lines[-1])
    assert "\r" not in "".join(lines)


class Experienced(Callback):
    """The agent has lived before."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        pl_module.env_steps = pl_module.earlier_env_steps = 1000


def test_steps_that_an_imported_agent_brings_along_are_not_the_runs(
    make_run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    make_run(Experienced(), TrainingProgress(), iterations=4, enable_progress_bar=True).fit()

    assert "100%  1,128 of 1,128 env steps" in capsys.readouterr().out


def test_a_short_run_prints_one_line_at_its_end(make_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(TrainingProgress(), iterations=4, enable_progress_bar=True).fit()

    assert capsys.readouterr().out.count("env steps") == 1


def test_the_last_line_tells_the_speed_of_the_whole_session(make_run: Any) -> None:
    progress = TrainingProgress()
    run = make_run(Experienced(), progress, iterations=4, enable_progress_bar=True)
    run.fit()

    line = progress.line(run.trainer, run.module, now=progress._start[0] + 64.5, ended=True)

    assert "env steps, 2/s" in line and line.endswith("01:04 in all")


def test_the_lines_before_tell_the_speed_of_late(make_run: Any) -> None:
    progress = TrainingProgress()
    run = make_run(Experienced(), progress, iterations=4, enable_progress_bar=True)
    run.fit()
    progress._recent.clear()
    progress._recent.append((progress._start[0] + 48.0, 1000))

    line = progress.line(run.trainer, run.module, now=progress._start[0] + 64.0)

    assert "env steps, 8/s" in line


def test_on_a_terminal_one_bar_is_redrawn_in_place(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)

    make_run(TrainingProgress(refresh_every_s=0), iterations=4, enable_progress_bar=True).fit()

    assert terminal.getvalue().count("\n") == 1
    assert "100%|" in terminal.getvalue().rpartition("\r")[2]


def test_it_refreshes_no_more_often_than_asked(make_run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)

    make_run(TrainingProgress(refresh_every_s=60), iterations=20, limit_val_batches=0, enable_progress_bar=True).fit()

    assert terminal.getvalue().count("of 640 env steps") <= 2


def test_disabled_it_shows_nothing(make_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    progress = TrainingProgress(line_every_s=0)
    progress.disable()

    make_run(progress, enable_progress_bar=True).fit()

    assert "env steps" not in capsys.readouterr().out
