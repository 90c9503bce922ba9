"""Small off-policy fits on two CPU ranks.

Of every kind a whole run, the beginning of one, its end from the checkpoint, and its end where rank 1 lost its replay;
and the beginning of a run with steps that do not count.
"""

from functools import partial
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback

from callbacks.run_control.checkpoint import RunCheckpoint
from modules.networks import GRU, RecurrentCritic
from modules.sac.curiosity import Curiosity
from modules.sac.sac import SAC
from modules.sac_options.sac_options import SACOptions
from tests.oracles.sac import box_data, small_sac
from tests.support.ddp_worker import Witness
from tests.support.replay_fixtures import replay_data, small_dqn
from tests.support.sequence_fixtures import SEQUENCES
from tests.support.small_runs import trainer

LONG = {"total_env_steps": 640, "learning_starts": 64, "n_step": 1}
"""Twenty iterations, the first of which waits."""

NETWORK = partial(GRU, hidden=16, encoder=(8,))
RECURRENT: dict[str, Any] = {"network": NETWORK, "critic": partial(RecurrentCritic, network=NETWORK)}

KINDS: dict[str, Any] = {
    "dqn": (partial(replay_data, total_env_steps=1280, learning_starts=128), small_dqn),
    "sac": (partial(box_data, **LONG), partial(small_sac, kind=SAC, normalize_obs=True, curiosity=Curiosity)),
    "sac_recurrent": (
        partial(box_data, **LONG, **SEQUENCES | {"batch_size": 4}),
        partial(small_sac, normalize_obs=True, **RECURRENT),
    ),
    "sac_options": (partial(box_data, **LONG), partial(small_sac, kind=SACOptions, normalize_obs=True)),
}

AUTORESETS: dict[str, Any] = {
    "env": "CartPole-v1", "env_kwargs": {}, "backend": "vector", "train_freq": 1, "replay_ratio": 4,
    "total_env_steps": 8000, "learning_starts": 800,
}  # fmt: skip
"""Cart-poles whose episodes end with a step that does not count, at other times on each rank."""

HALFWAY = 9


def fit(root: Path, kind: str, *callbacks: Callback, ckpt_path: Path | None = None, **changes: Any) -> None:
    """Train from seed 1 on two ranks."""
    lightning.seed_everything(1, verbose=False)
    make_data, make_model = (KINDS | {"autoresets": (partial(replay_data, **AUTORESETS), small_dqn)})[kind]
    data = make_data()
    model = make_model(data)
    run = trainer(root, *callbacks, strategy="ddp", devices=2, log_every_n_steps=1, **changes)
    run.fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)


def train(root: Path) -> None:
    """All runs of all kinds, one after the other."""
    for kind in KINDS:
        folder = root / kind
        fit(folder, kind, Witness(folder / "whole"))
        fit(folder, kind, RunCheckpoint(), limit_train_batches=HALFWAY)
        last = folder / "checkpoints" / "last.ckpt"
        fit(folder, kind, Witness(folder / "resumed"), ckpt_path=last)
        if torch.distributed.get_rank() == 1:
            next(last.parent.glob("last.replay-1-*.pt")).unlink()
        fit(folder, kind, Witness(folder / "bereft"), ckpt_path=last)
    folder = root / "autoresets"
    fit(folder, "autoresets", Witness(folder / "whole"), limit_train_batches=60)
