"""On two GPUs: a run whose graphs hold work between the ranks comes to its end."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


@pytest.mark.parametrize(
    ("config", "env_steps"), [("ppo_snake", 500_000), ("dqn_snake", 40_000), ("sac_options_synthetic", 2_000)]
)
def test_a_captured_run_of_two_ranks_ends(tmp_path: Path, config: str, env_steps: int) -> None:
    strategy = ["--trainer.devices", "2", "--trainer.strategy", "ddp", "--trainer.accelerator", "cuda"]
    short = ["--data.total_env_steps", str(env_steps), "--trainer.limit_val_batches", "0"]
    folder = ["--trainer.logger.init_args.save_dir", str(tmp_path)]

    command = [sys.executable, "-m", "app", "fit", "--config", f"{config}.yaml", *strategy, *short, *folder]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=150)

    assert ended.returncode == 0, ended.stderr[-2000:]
    assert "update compiled, one CUDA graph" in ended.stdout + ended.stderr or config != "ppo_snake"
