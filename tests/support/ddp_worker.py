"""A small fit on two CPU ranks, which write what they saw."""

import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback

from callbacks.run_control.graceful_stop import GracefulStop
from datamodules.core.pytree import tree_leaves
from datamodules.rollout import RolloutDataModule
from modules.networks import LSTM
from modules.optim import MuonAdamW
from tests.support.counting_env import Counting, Failing
from tests.support.small_runs import small_ppo, snake_data, trainer, weights_hash


class Witness(Callback):
    """Writes, for every iteration, a hash of the weights, the rewards' sum and the counters of this rank."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.lines: list[dict[str, Any]] = []

    def on_train_batch_end(self, trainer: lightning.Trainer, pl_module: Any, *_: Any) -> None:
        trainer.datamodule.wait()
        buffer = trainer.datamodule.collector.buffer
        obs = sum(float(part.sum()) for part in tree_leaves(buffer.obs))
        seen = {"actions": buffer.storage["action"].flatten().tolist(), "obs": obs}
        counters = {name: getattr(pl_module, name) for name in ("global_step", "env_steps", "updates")}
        self.lines.append(
            {**seen, **counters, "weights": weights_hash(pl_module), "latest": dict(pl_module.last_logged)}
        )
        (self.folder / f"rank{trainer.global_rank}.json").write_text(json.dumps(self.lines))


class Interrupted(Callback):
    """Rank 1 alone receives SIGTERM in its third iteration."""

    def on_train_batch_start(self, trainer: lightning.Trainer, *_: Any) -> None:
        if trainer.global_rank == 1 and trainer.global_step == 2:
            os.kill(os.getpid(), signal.SIGTERM)


LARGE: dict[str, Any] = {
    **{"network": partial(LSTM, hidden=16, encoder=(8,)), "share_torso": True, "optimizer": MuonAdamW},
    **{"bptt_length": 4, "advantage": "vtrace", "priority_alpha": 0.8, "refresh_values": True, "num_microbatches": 2},
    **{"reference_minibatch": 16, "learning_rate_warmup": 0.1, "reward_centering": 0.01},
}
"""PPO's settings for large rollouts, with Muon."""


class FailsOnRankOne(Failing):
    """Raises in the third step of every episode of rank 1."""

    def step(self, action: Any) -> Any:
        if os.environ.get("LOCAL_RANK") != "1":
            return Counting.step(self, action)
        return super().step(action)


def data_of(folder: Path, kind: str) -> RolloutDataModule:
    """Boards of Snake, observations of several parts, or environments of which one fails once on rank 1."""
    if kind != "restart":
        parts = {"env": "tests.support.parts_env.TensorReach", "env_kwargs": {}} if kind == "parts" else {}
        return snake_data(total_env_steps=2560, policy_lag=int("policy_lag" in kind), **parts)
    kwargs = {"how": "raise", "file": str(folder / "failed")}
    settings: dict[str, Any] = {"backend": "async", "on_env_error": "restart", "num_envs": 2, "rollout_length": 16}
    return RolloutDataModule(
        "tests.support.ddp_worker.FailsOnRankOne", env_kwargs=kwargs, total_env_steps=192, **settings
    )


def train(folder: Path, kind: str = "plain") -> None:
    """Train on two ranks; every rank writes its file.

    Args:
        folder: of the files.
        kind: plain, parts, policy_lag, restart, interrupt, large or large policy_lag.
    """
    lightning.seed_everything(1, verbose=False)
    data = data_of(folder, kind)
    callbacks = [Witness(folder), GracefulStop(), *([Interrupted()] if kind == "interrupt" else [])]
    run = trainer(folder, *callbacks, strategy="ddp", devices=2, val_check_interval=4, log_every_n_steps=1)
    large = LARGE if "large" in kind else {}
    run.fit(small_ppo(data, target_kl=0.01, **large), datamodule=data)
    run.save_checkpoint(folder / "end.ckpt")
