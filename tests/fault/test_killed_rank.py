"""A rank that is killed ends the other one."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.fault, pytest.mark.timeout(300)]

FIT = [
    "--trainer.accelerator", "cpu", "--trainer.devices", "2", "--trainer.strategy", "ddp", "--data.num_envs", "8",
    "--data.rollout_length", "8", "--model.network.hidden", "[16]", "--data.total_env_steps", "1_000_000_000",
]  # fmt: skip


@pytest.mark.parametrize("rank", [0, 1])
def test_the_other_rank_ends_with_a_message(tmp_path: Path, rank: int) -> None:
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "tests.support.ranked_fit", "fit", "--config", f"{root}/configs/ppo_fast.yaml"]
    environ = {**os.environ, "PYTHONPATH": str(root), "HASHES": str(tmp_path), "KILL_RANK": str(rank)}

    with (tmp_path / "log").open("w") as log:
        run = subprocess.Popen([*command, *FIT], cwd=tmp_path, env=environ, stdout=log, stderr=log)
        code = run.wait(timeout=110)
    said, end = ("Another rank ended", "has ended: this rank ends too"), time.monotonic() + 30
    while not any(text in (tmp_path / "log").read_text() for text in said) and time.monotonic() < end:
        time.sleep(0.2)

    assert code in (1, -9)
    assert any(text in (tmp_path / "log").read_text() for text in said), (tmp_path / "log").read_text()[-1500:]
