"""The data of a checkpoint is made again, or one sentence says why not."""

from pathlib import Path
from typing import Any

import pytest
import torch

from app.agent.data import load_data
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


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, "does not say which data"),
        (
            {"_class_path": "datamodules.RolloutDataModule", "env": "CartPole-v9"},
            "used: There is no environment",
        ),
        ({"_class_path": "datamodules.RolloutDataModule", "env": "my_games:Maze-v0"}, "imports `my_games`"),
        ({"_class_path": "os.system", "env": "CartPole-v1"}, "may not be imported"),
    ],
)
def test_data_that_cannot_be_made_is_refused_in_one_sentence(data: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=said) as refused:
        load_data(saved(tmp_path, **data))

    assert "\n" not in str(refused.value)
