from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.trajectory_writer import TrajectoryWriter, write_trajectories
from datamodules.core.errors import ConfigurationError


def episode(length: int, first: float) -> dict[str, torch.Tensor]:
    steps = torch.arange(length)
    return {
        "obs": first + torch.arange(length + 1.0).unsqueeze(1),
        "action": steps,
        "reward": torch.ones(length),
        "terminated": steps == length - 1,
        "truncated": torch.zeros(length, dtype=torch.bool),
    }


def test_offsets_cut_the_columns_back_into_episodes(tmp_path: Path) -> None:
    write_trajectories(tmp_path / "trajectories.npz", [episode(3, 0.0), episode(5, 100.0)])

    with np.load(tmp_path / "trajectories.npz", allow_pickle=False) as file:
        steps, states = file["episode_start"], file["obs_start"]
        assert steps.tolist() == [0, 3, 8] and states.tolist() == [0, 4, 10]
        assert file["action"][steps[1] : steps[2]].tolist() == [0, 1, 2, 3, 4]
        assert file["obs"][states[1] : states[2], 0].tolist() == [100, 101, 102, 103, 104, 105]
        assert file["terminated"].nonzero()[0].tolist() == [2, 7]


def test_each_part_of_an_observation_is_a_column(tmp_path: Path) -> None:
    parts = [{**episode(3, 0.0), "obs/image": torch.ones(4, 2, 2), "obs/goal": torch.arange(4)}]
    parts[0].pop("obs")

    write_trajectories(tmp_path / "trajectories.npz", parts)

    with np.load(tmp_path / "trajectories.npz", allow_pickle=False) as file:
        assert file["obs/image"].shape == (4, 2, 2) and file["obs/goal"].tolist() == [0, 1, 2, 3]
        assert file["obs_start"].tolist() == [0, 4]


def test_predict_writes_whole_episodes_into_the_run_folder(make_run: Any, capsys: Any) -> None:
    first = make_run(RunCheckpoint(), iterations=2).fit()
    run = make_run(TrajectoryWriter(), logger=False)

    run.trainer.predict(run.module, run.data, ckpt_path=first.folder / "checkpoints" / "last.ckpt", weights_only=True)

    path = first.folder / "trajectories.npz"
    assert f"2 episodes written to {path}" in capsys.readouterr().out
    with np.load(path, allow_pickle=False) as file:
        assert len(file["reward"]) == file["episode_start"][-1] == len(file["obs"]) - 2
        assert (file["terminated"] | file["truncated"]).sum() == 2


def test_predict_where_nothing_can_be_written_plays_no_episode(make_run: Any) -> None:
    run = make_run(TrajectoryWriter(), logger=False, default_root_dir="/proc")

    with pytest.raises(ConfigurationError, match="The folder /proc cannot be written"):
        run.trainer.predict(run.module, run.data)
