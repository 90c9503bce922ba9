"""Auxiliary losses on two CPU ranks: equal weights, and a resume that equals the uninterrupted run."""

import subprocess
import sys
from pathlib import Path

from tests.support.auxiliary_runs import every_loss


def test_ranks_hold_equal_weights_and_resume_exactly(tmp_path: Path) -> None:
    every_loss(tmp_path)  # the teachers
    hashes = {}
    for word in ("whole", "part", "rest"):
        command = [sys.executable, "-m", "tests.support.ddp_auxiliary_worker", str(tmp_path), word]
        done = subprocess.run(command, capture_output=True, text=True, timeout=110)
        assert done.returncode == 0, done.stderr[-3000:]
        hashes[word] = [(tmp_path / f"{word}-{rank}").read_text() for rank in (0, 1)]

    assert all(first == second for first, second in hashes.values())
    assert hashes["rest"] == hashes["whole"] != hashes["part"]
