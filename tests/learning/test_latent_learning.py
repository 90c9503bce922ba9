"""Latent models predict sequences that they were not shown, many steps ahead, through the real command line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.mark.parametrize(
    ("config", "bars"),
    [
        ("dynamics_offline.yaml", {"r2_1": 0.97, "r2_10": 0.93, "r2_20": 0.85}),
        ("dynamics_poisson.yaml", {"r2_1": 0.85, "r2_5": 0.75, "r2_10": 0.6}),
    ],
)
def test_held_out_sequences_are_predicted(config: str, bars: dict[str, float], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "app", "fit", "--config", config]

    done = subprocess.run([*command, f"--trainer.logger.init_args.save_dir={tmp_path}"], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-2000:]
    found = {name: float(value) for name, value in re.findall(r"dynamics/(r2_\d+) (-?[\d.]+)", done.stdout)}
    assert all(found[name] >= bar for name, bar in bars.items()), found
