"""Training with a pool of past checkpoints, then rating them."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

from tests.app.conftest import Run

CONFIG = """
model:
  class_path: modules.PPO
  init_args: {update_epochs: 1, num_minibatches: 2}
data:
  class_path: datamodules.RolloutDataModule
  init_args:
    env: Carball-v0
    env_kwargs: {mode: 1v2, time_limit: 30}
    policy_group: [0, 1, 2]
    opponents:
      - class_path: datamodules.envs.carball.chaser.Chaser
      - class_path: modules.CheckpointPool
        init_args: {size: 2}
    num_envs: 4
    rollout_length: 8
    total_env_steps: 192
    eval_episodes: 2
trainer:
  accelerator: cpu
  max_epochs: 1
  logger: {class_path: lightning.pytorch.loggers.CSVLogger, init_args: {save_dir: runs, name: small}}
  callbacks+:
    - class_path: callbacks.SelfPlay
      init_args: {every_n_iterations: 2}
"""


def test_a_run_is_rated(run: Run, folder: Path) -> None:
    (folder / "a.yaml").write_text(CONFIG)
    trained = run("fit", "--config", "a.yaml")
    place = folder / "runs" / "small" / "version_0"
    assert trained.code == 0, trained.err
    assert [path.name for path in sorted((place / "checkpoints" / "pool").glob("*.ckpt"))] == [
        f"iteration={number:07d}.ckpt" for number in (0, 2, 4, 6)
    ]

    rated = run("elo", str(place), "--games", "2", "--checkpoints", "3", "--max_steps", "20")

    assert rated.code == 0, rated.err
    with (place / "elo.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["player"] for row in rows] == ["0 env steps", "128 env steps", "192 env steps", "Chaser"]
    assert sum(float(row["rating"]) for row in rows) == 4 * 1500
    assert all(int(row["won"]) + int(row["drawn"]) + int(row["lost"]) == 12 for row in rows)
    picture = np.asarray(Image.open(place / "elo.png"))
    assert picture.ndim == 3 and picture.min() < picture.max()
    assert "12 of 12" in rated.out and "elo.csv" in rated.out


def test_bad_options_get_one_sentence(run: Run, folder: Path) -> None:
    for words, said in (
        (("nowhere",), "There are no checkpoints in nowhere/checkpoints"),
        (("nowhere", "--games", "0"), "--games is 0"),
        (("nowhere", "--k_factor", "0"), "--k_factor is 0.0"),
    ):
        refused = run("elo", *words)
        assert refused.code == 2 and said in refused.err and refused.err.strip().count("\n") == 0
