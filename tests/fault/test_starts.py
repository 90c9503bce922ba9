"""Two runs of one experiment start at the same moment, one of which fails: each has a folder, and keeps it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.conftest import EXPERIMENT
from tests.fault import print_count

ROOT = Path(__file__).resolve().parents[2]
PAIRS = 30
START = """
import sys, time
from app.runs import run_folder
claim = run_folder.RunFolders._claim
def aligned(self, trainer):
    print("ready", flush=True)
    sys.stdin.readline()
    claim(self, trainer)
run_folder.RunFolders._claim = aligned
from app.__main__ import main
main()
"""


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """A fit that waits, just before it claims its folder, for a line on standard input."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "LEYDEN_TRUST": "tests"}
    command = [sys.executable, "-c", START, "fit", "--config", "small.yaml", *words]
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip


def held(folder: Path) -> bool:
    """Whether one of two aligned starts that succeeds and one that fails left exactly the first one's run."""
    folder.mkdir()
    (folder / "small.yaml").write_text(EXPERIMENT)
    pair = [started(folder), started(folder, "--model.update_epochs", "14")]
    for process in pair:
        assert process.stdout is not None
        while process.stdout.readline() not in ("ready\n", ""):
            pass
    for process in pair:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    codes = [process.communicate(timeout=120) and process.returncode for process in pair]
    runs = list((folder / "runs" / "small").iterdir())
    whole = len(runs) == 1 and all((runs[0] / name).exists() for name in ("config.yaml", "checkpoints/last.ckpt"))
    return codes == [0, 1] and whole


@pytest.mark.fault
def test_aligned_pairs_of_starts_keep_their_folders(tmp_path: Path) -> None:
    kept = sum(held(tmp_path / str(pair)) for pair in range(PAIRS))

    print_count("pairs of starts at the same moment, one of which fails", kept, PAIRS)
    assert kept == PAIRS
