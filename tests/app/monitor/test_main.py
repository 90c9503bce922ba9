import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.utils.tensorboard import SummaryWriter

from app.monitor.main import count, duration, find_run, number
from tests.app.conftest import Run

ROOT = Path(__file__).resolve().parents[3]


def write_run(folder: Path, value: float = 1.0, at: float | None = None) -> Path:
    """A run with one point in each of four groups, written at a time in seconds since the epoch."""
    with SummaryWriter(folder) as writer:
        for tag in ("time/env_steps_per_s", "rollout/return_mean", "option/usage", "gpu/0/utilisation"):
            writer.add_scalar(tag, value, 4096, walltime=at)
    return folder


def start(*words: str, cwd: Path, **streams: int) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "130", "LINES": "50", "TERM": "xterm"}
    command = [sys.executable, *words]
    return subprocess.Popen(command, cwd=cwd, env=environ, text=True, **{"stdout": subprocess.PIPE, **streams})


def test_once_shows_the_newest_run_in_the_order_of_the_groups(run: Run, folder: Path) -> None:
    write_run(folder / "runs" / "snake" / "version_0", value=500.0)
    write_run(folder / "runs" / "pole" / "version_0", value=250.0, at=time.time() + 60)

    outcome = run("monitor", "--once")

    assert outcome.code == 0 and "runs/pole/version_0  4,096 env steps" in outcome.out
    assert [words.split()[0] for words in outcome.out.splitlines() if "last" in words] == [
        "rollout", "time", "gpu", "option",
    ]  # fmt: skip
    assert "return_mean" in outcome.out and "250" in outcome.out


def test_what_a_foreign_file_is_called_and_holds_cannot_steer_the_terminal(run: Run, folder: Path) -> None:
    with SummaryWriter(folder / "runs" / "a\x1b]0;title\x07" / "version_0") as writer:
        for tag in ("rollout/\x1b[31mreturn", "\x1b[2Jtrain/loss\r\n", "\u202eplain"):
            writer.add_scalar(tag, 1.0, 4096)

    outcome = run("monitor", "--once")

    assert outcome.code == 0 and "[31mreturn" in outcome.out
    assert all(line.isprintable() for line in outcome.out.split("\n"))


def test_a_missing_folder_is_named_without_what_would_steer_the_terminal(run: Run, folder: Path) -> None:
    outcome = run("monitor", "no\x1b[31mfolder")

    assert outcome.code == 2 and outcome.err == "There is no folder `no[31mfolder`: there is nothing to choose from.\n"


def test_a_run_an_experiment_and_the_root_are_all_understood(folder: Path) -> None:
    version = write_run(folder / "runs" / "snake" / "version_0")

    assert {find_run(str(named)) for named in (version, version.parent, version.parent.parent)} == {version}


def test_a_run_without_metrics_yet_is_shown(run: Run, folder: Path) -> None:
    SummaryWriter(folder / "runs" / "new").close()

    outcome = run("monitor", "--once")

    assert (outcome.code, "No metrics yet." in outcome.out) == (0, True)


def test_the_last_iteration_of_a_heartbeat_is_shown(run: Run, folder: Path) -> None:
    version = write_run(folder / "runs" / "snake" / "version_0")
    shown = []
    for text in ('{"time": %f, "iteration": 1234}' % (time.time() - 200), '{"time": 1', "[]", None):
        path = version / "heartbeat.json"
        path.unlink(missing_ok=True) if text is None else path.write_text(text)
        shown.append(" ".join(run("monitor", "--once").out.split()))

    assert "ago, iteration 1,234 3 min ago CPU" in shown[0]
    assert all(" ago CPU" in line and "iteration" not in line for line in shown[1:])


def test_a_run_that_ended_without_metrics_is_passed_over(folder: Path) -> None:
    learned, ended = write_run(folder / "runs" / "snake" / "version_0"), folder / "runs" / "snake" / "version_1"
    ended.mkdir()
    (ended / f"events.out.tfevents.{time.time() - 600:.0f}.host").touch()

    assert find_run(None) == learned.relative_to(folder)


def test_of_an_experiment_the_highest_version_is_shown_whatever_the_times_of_files(folder: Path) -> None:
    for version in (2, 10, 9):
        write_run(folder / "runs" / "snake" / f"version_{version}")
    copied = next((folder / "runs" / "snake" / "version_9").iterdir())
    os.utime(copied, (time.time() + 600,) * 2)

    assert find_run(None) == Path("runs", "snake", "version_10")


def test_of_two_experiments_the_one_with_the_newest_event_is_shown_whatever_the_times_of_files(folder: Path) -> None:
    now = time.time()
    for name, age in (("snake", 6000), ("pole", 3000), ("arm", 9000)):
        write_run(folder / "runs" / name / "version_0", at=now + 10_000 - age)
    os.utime(next((folder / "runs" / "arm" / "version_0").iterdir()), (now + 600,) * 2)

    assert find_run(None) == Path("runs", "pole", "version_0")


def test_a_link_to_an_event_file_that_is_gone_is_passed_over(run: Run, folder: Path) -> None:
    version = write_run(folder / "runs" / "snake" / "version_0")
    for place in (version, folder / "runs" / "snake" / "version_1"):
        place.mkdir(exist_ok=True)
        (place / "events.out.tfevents.1.host").symlink_to(folder / "gone")

    assert find_run(None) == version.relative_to(folder)
    assert "return_mean" in run("monitor", str(version), "--once").out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "There is no run here (no folder `runs`)"),
        (("empty",), "There is no run in `empty`: start one with `python -m app fit"),
        (("emty",), "There is no folder `emty`: did you mean `empty`?"),
        (("--interval", "soon"), "invalid float value: 'soon'"),
        (("--interval", "0"), "`--interval` is 0; give the seconds"),
        (("--interval", "nan"), "`--interval` is nan; give the seconds"),
        (("--intervall", "1"), "--intervall"),
    ],
)
def test_bad_input_is_one_sentence(run: Run, folder: Path, words: tuple[str, ...], sentence: str) -> None:
    (folder / "empty").mkdir()

    outcome = run("monitor", *words)

    assert (outcome.code, outcome.err.count("\n"), outcome.out) == (2, 1, "")
    assert sentence in outcome.err


def test_it_imports_neither_torch_nor_lightning(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "version_0")
    heavy = "{'torch', 'lightning', 'gymnasium', 'matplotlib'}"
    script = f"import sys; from app.__main__ import main; main(); sys.exit(str({heavy} & set(sys.modules)))"

    process = start("-c", script, "monitor", "--once", cwd=tmp_path, stderr=subprocess.PIPE)

    out, err = process.communicate(timeout=60)
    assert "return_mean" in out and err.strip() == "set()"


def test_in_a_pipe_it_prints_picture_after_picture_until_ctrl_c(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "version_0")
    process = start("-u", "-m", "app", "monitor", "--interval", "0.05", cwd=tmp_path)
    assert process.stdout is not None

    seen = [next(line for line in process.stdout if "return_mean" in line) for _ in range(3)]
    process.send_signal(signal.SIGINT)

    assert process.communicate(timeout=100) and process.returncode == 0
    assert seen[0] == seen[2]


def test_in_a_terminal_it_redraws_and_leaves_it_clean_at_ctrl_c(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "version_0")
    ours, theirs = pty.openpty()
    process = start("-m", "app", "monitor", "--interval", "0.05", cwd=tmp_path, stdout=theirs)
    os.close(theirs)

    shown = ""
    while shown.count("env_steps_per_s") < 3:
        shown += os.read(ours, 4096).decode(errors="replace")
    process.send_signal(signal.SIGINT)
    while chunk := terminal_output(ours):
        shown += chunk

    assert process.wait(timeout=100) == 0
    assert "\x1b[?25l" in shown and shown.rindex("\x1b[?25h") > shown.rindex("\x1b[?25l")


def terminal_output(descriptor: int) -> str:
    """What a terminal shows next; nothing once its program has ended, which Linux says with an error."""
    try:
        return os.read(descriptor, 4096).decode(errors="replace")
    except OSError:
        return ""


def test_numbers_fit_their_columns() -> None:
    assert [number(value) for value in (0.0, -7.16837e-06, 147785.3, 12_345_678.0, float("nan"))] == [
        "0", "-7.168e-06", "147,785", "1.235e+07", "nan",
    ]  # fmt: skip
    assert [count(steps) for steps in (0, 6_012_928, 123_456_789)] == ["0", "6,012,928", "123.5 M"]
    assert [duration(seconds) for seconds in (-1, 100, 600, 10_000, 200_000)] == [
        "0 s",
        "100 s",
        "10 min",
        "3 h",
        "2 d",
    ]
