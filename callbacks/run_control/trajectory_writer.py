"""TrajectoryWriter: write the episodes of `predict` to a file."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer

from callbacks.run_control.atomic_write import atomic_write
from callbacks.run_control.checkpoint import run_folder
from datamodules.core.files.paths import require_writable
from datamodules.core.files.printable import counted
from datamodules.core.types import EpisodeBatch


class TrajectoryWriter(Callback):
    """Write all episodes to `trajectories.npz` in the run folder of the checkpoint.

    The file holds no pickled objects. Episodes are concatenated; with N episodes of L_i steps:
    action `[sum L_i, ...]`, reward, terminated and truncated `[sum L_i]`; obs `[sum (L_i + 1), ...]`, which includes
    the true last observation, `obs/NAME` for each part of observations of several parts; episode_start and obs_start
    `[N + 1]`, so that episode i is `action[episode_start[i]:episode_start[i + 1]]` and
    `obs[obs_start[i]:obs_start[i + 1]]`.
    Other ranks write `trajectories_rank1.npz` and so on.
    """

    def __init__(self) -> None:
        self._episodes: list[dict[str, torch.Tensor]] = []

    def on_predict_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Clear the episodes; check that the file can be written before they are played."""
        self._episodes = []
        require_writable(run_folder(trainer.ckpt_path, trainer.default_root_dir), "default_root_dir")

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: Any,
        outputs: EpisodeBatch,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Store the episodes of a batch."""
        self._episodes += outputs.trajectories

    def on_predict_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write the file and print its path."""
        rank = f"_rank{trainer.global_rank}" if trainer.global_rank else ""
        path = run_folder(trainer.ckpt_path, trainer.default_root_dir) / f"trajectories{rank}.npz"
        if not self._episodes:
            pl_module.print("No episode ended, so nothing is written: raise data.eval_max_steps.")
            return
        write_trajectories(path, self._episodes)
        pl_module.print(f"{counted(len(self._episodes), 'episode')} written to {path}")


def write_trajectories(path: Path, episodes: list[dict[str, torch.Tensor]]) -> None:
    """Write episodes one after the other, with the start of each; see `TrajectoryWriter`."""
    columns: dict[str, Any] = {
        name: torch.cat([episode[name] for episode in episodes]).cpu().numpy() for name in episodes[0]
    }
    part = next(name for name in columns if name.partition("/")[0] == "obs")
    starts: dict[str, Any] = {"episode_start": offsets(episodes, "reward"), "obs_start": offsets(episodes, part)}
    with atomic_write(path) as file:
        np.savez_compressed(file, **columns, **starts)


def offsets(episodes: list[dict[str, torch.Tensor]], name: str) -> np.ndarray:
    """Return the start of each episode in a column, and the end of the last one."""
    return np.cumsum([0, *(len(episode[name]) for episode in episodes)])
