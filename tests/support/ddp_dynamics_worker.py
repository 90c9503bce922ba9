"""Small runs of active dynamics on two CPU ranks, which write what they hold afterwards."""

import json
from pathlib import Path

import lightning

from modules.exploration.observation_box import ObservationBox
from tests.support.dynamics_fixtures import explorer, spring_data
from tests.support.small_runs import trainer, weights_hash


def train(folder: Path, num_updates: int) -> None:
    """Train, with a growing box if there are gradient steps; every rank writes what it holds and what it stored."""
    lightning.seed_everything(1, verbose=False)
    data = spring_data(num_updates=num_updates, total_env_steps=96)
    model = explorer(data, posterior_refit_interval=2, box=ObservationBox(2) if num_updates else None)
    run = trainer(folder, strategy="ddp", devices=2)
    run.fit(model, datamodule=data)
    history = data.ring.history()
    found = {"weights": weights_hash(model), "stored": history.obs[1:][history.contiguous].tolist()}
    if num_updates:
        found["bounds"] = [model.box.lowest.tolist(), model.box.highest.tolist()]
    (folder / f"rank{run.global_rank}.json").write_text(json.dumps(found), encoding="utf-8")
