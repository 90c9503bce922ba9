"""A run that is resumed on another number of ranks ends at the env steps asked for."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

STEPS = 1280
"""Environment steps of the whole run; an iteration takes 128 of them on each rank."""


def counters(folder: Path, *words: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.support.ddp_resume_worker", str(folder), *words]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=110)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return json.loads((folder / "counters.json").read_text(encoding="utf-8"))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)], ids=["two to one", "one to two"])
def test_a_run_resumed_on_other_ranks_ends_within_an_iteration(tmp_path: Path, before: int, after: int) -> None:
    part = counters(tmp_path, str(before), "max_steps=3")

    resumed = counters(tmp_path, str(after))

    assert part["env_steps"] == 3 * 128 * before
    left = STEPS - part["env_steps"]
    assert resumed["global_step"] == 3 + -(-left // (128 * after))
    assert STEPS <= resumed["env_steps"] < STEPS + 128 * after
    assert resumed["progress"] == 1.0
