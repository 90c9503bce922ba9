"""Writes what `predict` played."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer

from callbacks.run_control.atomic_write import atomic_file
from callbacks.run_control.checkpoint import run_folder
from datamodules.core.types import Episodes

COLUMNS = ("obs", "action", "reward", "terminated", "truncated")


class Trajectories(Callback):
    """Writes all episodes into `trajectories.npz` in the run folder of the checkpoint that played.

    The file holds no pickled objects. Episodes lie one after the other; with N episodes of L_i steps:
    action `[sum L_i, ...]`, reward, terminated and truncated `[sum L_i]`; obs `[sum (L_i + 1), ...]`, which includes
    the true last observation; episode_start and obs_start `[N + 1]`, so that episode i is
    `action[episode_start[i]:episode_start[i + 1]]` and `obs[obs_start[i]:obs_start[i + 1]]`.
    Other ranks than the first write `trajectories_rank1.npz` and so on.
    """

    def __init__(self) -> None:
        self._episodes: list[dict[str, torch.Tensor]] = []

    def on_predict_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Begin with none."""
        self._episodes = []

    def on_predict_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Episodes, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Keep the episodes of a batch."""
        self._episodes += outputs.trajectories

    def on_predict_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write the file and say where it is."""
        rank = f"_rank{trainer.global_rank}" if trainer.global_rank else ""
        path = run_folder(trainer.ckpt_path, trainer.default_root_dir) / f"trajectories{rank}.npz"
        if not self._episodes:
            pl_module.print("No episode ended, so there is nothing to write: see data.eval_max_steps.")
            return
        write_trajectories(path, self._episodes)
        pl_module.print(f"{len(self._episodes)} episodes written to {path}")


def write_trajectories(path: Path, episodes: list[dict[str, torch.Tensor]]) -> None:
    """Write episodes one after the other, with where each begins; see `Trajectories`."""
    columns: dict[str, Any] = {
        name: torch.cat([episode[name] for episode in episodes]).cpu().numpy() for name in COLUMNS
    }
    starts: dict[str, Any] = {"episode_start": offsets(episodes, "reward"), "obs_start": offsets(episodes, "obs")}
    with atomic_file(path) as file:
        np.savez_compressed(file, **columns, **starts)


def offsets(episodes: list[dict[str, torch.Tensor]], name: str) -> np.ndarray:
    """Where each episode begins in a column, and where the last one ends."""
    return np.cumsum([0, *(len(episode[name]) for episode in episodes)])
