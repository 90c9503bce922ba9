"""The data of a checkpoint is made again, or one sentence says why not."""

from pathlib import Path
from typing import Any

import pytest
import torch

from app.agent.data import load_data
from app.cli.import_policy import untrusted_environments
from datamodules.core.errors import ConfigurationError
from datamodules.rollout import RolloutDataModule


def saved(folder: Path, **data: Any) -> Path:
    """A checkpoint that names its data."""
    path = folder / "a.ckpt"
    torch.save({"state_dict": {}, "datamodule_hyper_parameters": data}, path)
    return path


def test_the_data_is_that_of_the_run(tmp_path: Path) -> None:
    path = saved(tmp_path, _class_path="datamodules.RolloutDataModule", env="CartPole-v1", num_envs=3)

    data = load_data(path)

    assert isinstance(data, RolloutDataModule) and (data.env, data.num_envs) == ("CartPole-v1", 3)


def test_the_name_of_a_file_is_no_import(tmp_path: Path) -> None:
    data = {"_class_path": "datamodules.OfflineReplayDataModule", "env": "CartPole-v1", "dataset": "episodes.npz"}

    with pytest.raises(ConfigurationError, match=r"There is no file episodes\.npz"):
        load_data(saved(tmp_path, **data))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "does not say which data"),
        (
            {"_class_path": "datamodules.RolloutDataModule", "env": "CartPole-v9"},
            "used: There is no environment",
        ),
        ({"_class_path": "datamodules.RolloutDataModule", "env": "my_games:Maze-v0"}, "imports `my_games`"),
        (
            {"_class_path": "os.system", "env": "CartPole-v1"},
            "os.system is refused: a checkpoint may not use this part of `os`",
        ),
        ({"_class_path": "datamodules.RolloutDataModule", "env": "os:X"}, "`os:X` is refused"),
        (
            {"_class_path": "datamodules.RolloutDataModule", "env": "CartPole-v1", "wrappers": ["my_wrappers.Mine"]},
            "may not be imported: if you trust that code, add `--trust my_wrappers`",
        ),
    ],
)
def test_data_that_cannot_be_made_is_refused_in_one_sentence(data: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        load_data(saved(tmp_path, **data))

    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "data",
    [
        {"env": "mpe2.simple_spread_v3"},
        {"env": "pettingzoo.butterfly.knights_archers_zombies_v11"},
        {"env": "minigrid:MiniGrid-Empty-5x5-v0"},
        {"env": "gymnasium_robotics:FetchReach-v4"},
        {"env": "CartPole-v1", "wrappers": ["minigrid.wrappers.FlatObsWrapper"]},
    ],
)
def test_data_that_a_config_may_name_without_trust_needs_none(data: dict[str, Any], tmp_path: Path) -> None:
    assert not list(untrusted_environments(data, ()))

    try:
        load_data(saved(tmp_path, _class_path="datamodules.RolloutDataModule", **data))
    except ConfigurationError as error:  # its package is not installed
        assert "trust" not in str(error) and "may not be imported" not in str(error)
