"""A signal to a verb ends the programs that it started: gently first, then by force."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from app.child_processes import ROOT, child_environ, child_process, run_child
from datamodules.core.signals import STOP_SIGNALS
from tests.support.forked_programs import ForkedPopen

PARENT = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from app import child_processes
from app.child_processes import child_environ, exits_with_children, run_child

child_processes.GRACE = float(sys.argv[2])

def child(name):
    run_child([sys.executable, "-c", sys.argv[1], name], child_environ())

with exits_with_children(), ThreadPoolExecutor(2) as pool:
    list(pool.map(child, ["0", "1", "2"]))
"""
SAVING = """
import signal, sys, time
from pathlib import Path
name = Path(sys.argv[1])
def save(number, frame):
    name.with_suffix(".saved").touch()
    sys.exit()
signal.signal(signal.SIGTERM, {handler})
name.with_suffix(".started").touch()
time.sleep(100)
"""
GENTLE, DEAF = SAVING.format(handler="save"), SAVING.format(handler="signal.SIG_IGN")


@contextmanager
def parent(folder: Path, child: str, grace: float = 100) -> Iterator[subprocess.Popen[bytes]]:
    """A program that makes three runs, two at a time, after both have started."""
    command, ends = [sys.executable, "-c", PARENT, child, str(grace)], time.monotonic() + 60
    with subprocess.Popen(command, cwd=folder, env=child_environ(), stdout=subprocess.PIPE) as process:
        while len([*folder.glob("*.started")]) < 2 and time.monotonic() < ends:
            time.sleep(0.01)
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", STOP_SIGNALS)
def test_a_signal_lets_programs_save_and_starts_no_more(tmp_path: Path, number: signal.Signals) -> None:
    with parent(tmp_path, GENTLE) as process:
        process.send_signal(number)

        assert process.wait(60) == 128 + number
        assert sorted(path.name for path in tmp_path.glob("*.saved")) == ["0.saved", "1.saved"]
    assert not (tmp_path / "2.started").exists()


def test_a_second_signal_kills_programs(tmp_path: Path) -> None:
    with parent(tmp_path, DEAF) as process:
        process.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)

        assert process.wait(60) == 143
    assert not (tmp_path / "2.started").exists()


def test_programs_that_do_not_end_are_killed_after_a_while(tmp_path: Path) -> None:
    with parent(tmp_path, DEAF, grace=0.5) as process:
        process.send_signal(signal.SIGTERM)

        assert process.wait(20) == 143


def test_an_error_ends_the_program(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(100)"]

    with pytest.raises(subprocess.TimeoutExpired):
        run_child(command, child_environ(), timeout=0.1)
    with pytest.raises(KeyError), child_process(command, child_environ(), stdin=subprocess.PIPE) as process:
        raise KeyError

    assert process.returncode == -signal.SIGTERM


def test_all_programs_of_the_application_are_started_in_this_way() -> None:
    sources = {path: path.read_text() for path in (ROOT / "app").rglob("*.py") if path.stem != "child_processes"}

    assert not [path for path, text in sources.items() if re.search(r"subprocess\.(run|Popen|check)\w*\(", text)]


@pytest.mark.usefixtures("forked_programs")
@pytest.mark.parametrize(
    ("words", "sign"),
    [
        (("compare", "--with", "data.total_env_steps=1e8", "--with", "trainer.val_check_interval=1"), "**/last.ckpt"),
        (("benchmark", "--repeats", "99", "--set", "data.num_envs=4"), "*/0/log.txt"),
        (("verify", "--only", "repeat"), "*/whole/*"),
    ],
)
def test_verbs_end_their_programs_and_leave_no_temporary_folder(
    tmp_path: Path, words: tuple[str, ...], sign: str
) -> None:
    command = [sys.executable, "-m", "app", *words, "--config", "ppo_cartpole.yaml"]
    environ, ends = child_environ() | {"TMPDIR": str(tmp_path)}, time.monotonic() + 60
    with ForkedPopen(command, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        while not any(path.stat().st_size for path in tmp_path.glob(sign)) and time.monotonic() < ends:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)

        said = process.communicate(timeout=60)[0].decode()

    assert process.returncode == 143, said
    left = [path.name for path in tmp_path.iterdir()]
    assert left == (["runs"] if words[0] == "compare" else []), said
    logs = [path.read_text() for path in tmp_path.glob("runs/compare/*/seed_*/log.txt")]
    assert [log.count("Stopped by SIGTERM") for log in logs] == [1] * (words[0] == "compare")
    assert not children_in(tmp_path)


def children_in(folder: Path) -> list[Path]:
    """The processes that work in a folder or below it."""
    folders = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            folders[process] = (process / "cwd").resolve()
    return [process for process, path in folders.items() if path.is_relative_to(folder)]
