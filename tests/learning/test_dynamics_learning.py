"""Exploring learns vector fields in fewer steps than held random actions do, through the real command line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SYSTEMS = {
    "duffing": (0.9, 0.98),
    "vanderpol": (0.9, 0.9),
    "doublewell": (0.8, 0.75),
    "limitcycle": (0.8, 0.85),
    "ring": (0.8, 0.88),
}
"""By system: the R2 that is to be reached soon, and that after 1,000 steps."""

HELD = "modules.exploration.HeldRandomAction"


@pytest.mark.parametrize("system", SYSTEMS)
def test_exploring_beats_held_random_actions(system: str, tmp_path: Path) -> None:
    soon, late = SYSTEMS[system]
    words = ["--config", f"dynamics_{system}.yaml", "--metric", "dynamics/field_r2", "--threshold", str(soon)]
    words += ["--seeds", "3", "--set", f"model.exploration={HELD},", "--folder", str(tmp_path)]
    words += ["--with", "data.total_env_steps=1000", "--with", "trainer.callbacks=[]"]

    done = subprocess.run([sys.executable, "-m", "app", "compare", *words], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr[-2000:]
    held, active = json.loads(done.stdout.splitlines()[-1]).values()
    assert active["final"][0] >= late
    assert (active["env_steps"][0] or 1e9) <= 0.7 * (held["env_steps"][0] or 1e9)
