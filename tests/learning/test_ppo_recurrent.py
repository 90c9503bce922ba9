"""PPO that remembers balances a pole whose velocity it is not shown, and turns where a sign told it to."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.learning.test_ppo_learning import must_reach

PROGRAM = [sys.executable, "-m", "app"]
CONFIG = ["--config", "ppo_cartpole_memory.yaml"]


def score(folder: Path, network: str, seed: int) -> float:
    """Mean return of greedy episodes after the whole run."""
    folder.mkdir()
    environment = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PATH": ""}
    run = [*CONFIG, "--model.network", network, "--model.network.hidden", "64", "--model.network.encoder", "[64]"]
    for words in (["fit", *run, "--seed_everything", str(seed)], ["test", *run, "--ckpt_path", "last"]):
        subprocess.run([*PROGRAM, *words], cwd=folder, env=environment, check=True, capture_output=True)
    (metrics,) = folder.rglob("metrics.json")
    return float(json.loads(metrics.read_text())["return_mean"])


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("network", ["LSTM", "GRU", "MinGRU"])
def test_cartpole_without_velocities_is_balanced_for_400_of_500_steps(tmp_path: Path, network: str) -> None:
    scores = [score(tmp_path / str(seed), network, seed) for seed in (1, 2, 3)]
    assert sorted(scores)[1] >= 400, scores


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_t_maze_of_length_10_is_left_on_the_side_of_the_reward(tmp_path: Path) -> None:
    must_reach(tmp_path, "ppo_tmaze.yaml", 0.95, needed=3, of="success_mean")
