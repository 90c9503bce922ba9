"""Small runs of PPO with auxiliary losses, plain and recurrent, and their teachers."""

from functools import partial
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

from datamodules.base import EnvDataModule
from modules.networks import LSTM
from modules.ppo.auxiliary.base import AuxiliaryLoss
from modules.ppo.auxiliary.contrastive import InfoNCELoss
from modules.ppo.auxiliary.kickstart import KickstartLoss
from modules.ppo.auxiliary.l2_init import L2InitLoss
from modules.ppo.ppo import PPO
from tests.support.small_runs import small_ppo, snake_data, trainer

RECURRENT: dict[str, Any] = {"network": partial(LSTM, hidden=16, encoder=(8,)), "share_torso": True}


def six_iterations(**changes: Any) -> EnvDataModule:
    """Six iterations of Snake, each of 128 steps."""
    return snake_data(total_env_steps=768, **changes)


def fit(root: Path, *callbacks: Callback, data: EnvDataModule | None = None, losses: Any = None, **changes: Any) -> PPO:
    """A small PPO trained on Snake from seed 1; `trainer_` before a setting makes it the Trainer's."""
    lightning.seed_everything(1, verbose=False)
    data, ckpt_path = data or six_iterations(), changes.pop("ckpt_path", None)
    own = {name.removeprefix("trainer_"): changes.pop(name) for name in [*changes] if name.startswith("trainer_")}
    model = small_ppo(data, auxiliary_losses=losses, **changes)
    trainer(root, *callbacks, **own).fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    return model


def teacher(root: Path, name: str = "teacher", **changes: Any) -> str:
    """The path of a checkpoint of `fit`."""
    path, model = root / f"{name}.ckpt", fit(root, **changes)
    model.trainer.save_checkpoint(path)
    return str(path)


def every_loss(root: Path) -> list[AuxiliaryLoss]:
    """One of each, with a plain and a recurrent teacher, which are made if they are not there."""
    paths = [root / "plain.ckpt", root / "recurrent.ckpt"]
    if not all(path.is_file() for path in paths):
        teacher(root, "plain"), teacher(root, "recurrent", **RECURRENT)
    kickstart = KickstartLoss([str(path) for path in paths], anneal_env_steps=1000)
    return [kickstart, InfoNCELoss(), L2InitLoss(1e-2)]
