"""A small run on one or two CPU ranks that continues from FOLDER/part.ckpt if that is there."""

import json
from pathlib import Path
from typing import Any

import lightning

from tests.support.small_runs import small_ppo, snake_data, trainer


def train(folder: Path, ranks: int, **limits: Any) -> None:
    """Train and save FOLDER/part.ckpt; rank 0 writes the counters into FOLDER/counters.json."""
    lightning.seed_everything(1, verbose=False)
    data, part = snake_data(), folder / "part.ckpt"
    model, settings = small_ppo(data), {"strategy": "ddp" if ranks > 1 else "auto", "devices": ranks}
    run = trainer(folder, **settings, **limits)
    run.fit(model, datamodule=data, ckpt_path=part if part.exists() else None, weights_only=True)
    run.save_checkpoint(part)
    if run.is_global_zero:
        counters = {"env_steps": model.env_steps, "global_step": model.global_step, "progress": model.progress}
        (folder / "counters.json").write_text(json.dumps(counters), encoding="utf-8")


def train_part(folder: Path, ranks: int) -> None:
    """Train three iterations."""
    train(folder, ranks, max_steps=3)
