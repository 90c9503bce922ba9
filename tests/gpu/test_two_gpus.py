"""On two GPUs: equal weights, an end, an exact resume, and the end of all ranks when one is killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]

CONFIGS = Path(__file__).parents[2] / "configs"
TWO = ["--trainer.devices", "2", "--trainer.strategy", "ddp", "--trainer.accelerator", "cuda"]
SNAKE = ["--config", f"{CONFIGS}/ppo_snake.yaml", "--data.num_envs", "256", "--data.rollout_length", "16"]
RECURRENT = [
    "--config", f"{CONFIGS}/ppo_snake.yaml", "--data.num_envs", "128", "--data.rollout_length", "16",
    "--model.network", "modules.networks.LSTM", "--model.network.hidden", "64", "--model.network.encoder", "[64]",
    "--model.share_torso", "true", "--model.num_minibatches", "4",
]  # fmt: skip
RUNS = {
    "ppo": [*SNAKE, "--data.total_env_steps", str(2 * 256 * 16 * 100)],
    "ppo_policy_lag": [*SNAKE, "--data.total_env_steps", str(2 * 256 * 16 * 100), "--data.policy_lag", "1"],
    "ppo_recurrent": [*RECURRENT, "--data.total_env_steps", str(2 * 128 * 16 * 100)],
    "dqn": [
        "--config", f"{CONFIGS}/dqn_snake.yaml", "--data.total_env_steps", str(2 * 256 * 4 * 110),
        "--data.learning_starts", "10000",
    ],
    "sac_options": ["--config", f"{CONFIGS}/sac_options_synthetic.yaml", "--data.total_env_steps", "16_000"],
}  # fmt: skip
"""At least a hundred iterations each."""


def fit(folder: Path, words: list[str], **environ: str) -> tuple[int, str]:
    """Train on two GPUs; return exit code and output. Every rank writes the hash of its weights into the folder."""
    command = [sys.executable, "-m", "tests.support.ranked_fit", "fit", *words, *TWO]
    place = ["--trainer.logger.init_args.save_dir", str(folder), "--trainer.limit_val_batches", "0"]
    environ = {**os.environ, "HASHES": str(folder), **environ}
    with (folder / "log").open("w") as log:
        ended = subprocess.run([*command, *place], stdout=log, stderr=log, timeout=200, env=environ)
    return ended.returncode, (folder / "log").read_text()


def hashes(folder: Path) -> list[str]:
    """Return what every rank wrote."""
    return [file.read_text() for file in sorted(folder.glob("rank*"))]


@pytest.mark.parametrize("name", RUNS)
def test_both_ranks_end_with_equal_weights(tmp_path: Path, name: str) -> None:
    code, output = fit(tmp_path, RUNS[name])

    assert code == 0, output[-2000:]
    first, second = hashes(tmp_path)
    assert first == second and int(first.split()[1]) >= 100
    assert "update compiled, one CUDA graph" in output or not name.startswith("ppo")


def test_a_run_in_two_parts_equals_one_run(tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    words = [*SNAKE, "--data.total_env_steps", str(2 * 256 * 16 * 60)]

    runs = [
        fit(whole, words),
        fit(parts, [*words, "--trainer.max_steps", "30"]),
        fit(parts, [*words, "--ckpt_path", "last"]),
    ]

    assert [code for code, _ in runs] == [0, 0, 0], runs[-1][1][-2000:]
    assert hashes(whole) == hashes(parts)


@pytest.mark.parametrize("rank", ["0", "1"])
def test_a_killed_rank_ends_the_other(tmp_path: Path, rank: str) -> None:
    code, _ = fit(tmp_path, [*SNAKE, "--data.total_env_steps", "1_000_000_000"], KILL_RANK=rank)
    killed = time.monotonic()

    while (left := running(tmp_path)) and time.monotonic() < killed + 30:
        time.sleep(0.5)

    output = (tmp_path / "log").read_text()
    assert code != 0 and not left
    assert "terminated with code" in output or "has ended: this rank ends too" in output, output[-2000:]


def running(folder: Path) -> list[str]:
    """Return the processes whose command line names the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in words and "ranked_fit" in words:
            found.append(process.name)
    return found
