"""CheckpointOption acts as the learned option of its checkpoint, and does not change."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.envs.four_rooms import Eigenpurpose, PrimitiveAction
from datamodules.replay import ReplayDataModule
from modules.networks.base import extract_features
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.sac.sac import SAC
from modules.sac_options.checkpoint_option import CheckpointOption
from modules.sac_options.controller import OptionController
from modules.sac_options.sac_options import SACOptions
from tests.support.small_runs import trainer

NETS: dict[str, Any] = {"network": partial(MLP, hidden=(16,)), "critic": partial(TwinMLP, hidden=(16,))}
PURPOSE = "datamodules.envs.four_rooms.Eigenpurpose"
SEEKS: list[dict[str, Any]] = [{"index": 1, "sign": 1}, {"index": 1, "sign": -1}]
CONTROLLER = partial(OptionController, network=NETS["network"])


def data_of(steps: int) -> ReplayDataModule:
    settings: dict[str, Any] = {"num_envs": 4, "train_freq": 2, "batch_size": 16, "replay_ratio": 2, "capacity": 1000}
    return ReplayDataModule("FourRooms-v0", learning_starts=8, total_env_steps=steps, eval_episodes=1, **settings)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint of three options, two with rewards of a class, named as runs of the command line name it."""
    folder = tmp_path_factory.mktemp("options")
    lightning.seed_everything(1, verbose=False)
    data = data_of(80)
    rewards = ["task", *(Eigenpurpose(**each) for each in SEEKS)]
    model = SACOptions(data.spaces, num_options=3, option_rewards=rewards, controller=CONTROLLER, **NETS)
    run = trainer(folder)
    run.fit(model, datamodule=data)
    run.save_checkpoint(folder / "options.ckpt")
    content = torch.load(folder / "options.ckpt", weights_only=True)
    content["hyper_parameters"]["option_rewards"] = [
        "task",
        *({"class_path": PURPOSE, "init_args": each} for each in SEEKS),
    ]
    torch.save(content, folder / "options.ckpt")
    return folder / "options.ckpt"


def test_it_takes_the_most_probable_action_of_the_learned_option(checkpoint: Path):
    model, obs = SACOptions.load_from_checkpoint(checkpoint, trusted=("datamodules",)), torch.eye(104)
    age = torch.zeros(104, dtype=torch.int64)
    logits = model.head(extract_features(model.network, obs)).logits.view(104, 3, 4)

    for index in range(3):
        option = CheckpointOption(str(checkpoint), index, duration=5)
        action = option.action(obs, age, age)
        assert torch.equal(action, logits[:, index].argmax(-1)) and action.dtype == age.dtype
        assert option.termination(obs, age).unique().item() == pytest.approx(0.2)
        assert option.initiation(obs).all() and len(option.initiation(obs)) == 104


def test_a_master_learns_to_choose_it_and_it_stays_as_it_was(checkpoint: Path, tmp_path: Path):
    option, data = CheckpointOption(str(checkpoint), 1), data_of(80)
    before = {name: leaf.clone() for name, leaf in option.model_on(torch.device("cpu")).state_dict().items()}
    scripts: list[Any] = [option, PrimitiveAction("up")]
    model = SACOptions(data.spaces, scripted_options=scripts, controller=CONTROLLER, **NETS)

    trainer(tmp_path).fit(model, datamodule=data)

    after = option.model_on(torch.device("cpu")).state_dict()
    assert model.updates > 0 and all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"option": 3}, "has option 3; choose from 0 to 2, the options of /"),
        ({"option": -1}, "has option -1; choose from 0 to 2, the options of /"),
        ({"option": 0, "duration": 0.5}, "has duration 0.5; choose at least 1 step.$"),
    ],
)
def test_options_that_the_checkpoint_does_not_have_are_refused(checkpoint: Path, settings: dict[str, Any], said: str):
    with pytest.raises(ConfigurationError, match=f"^CheckpointOption {said}"):
        CheckpointOption(str(checkpoint), **settings)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"obs_shape": (424,)}, r"obs_shape \(104,\) in the checkpoint, \(424,\) in the environment"),
        ({"action_sizes": [6]}, r"action_sizes \[4\] in the checkpoint, \[6\] in the environment"),
        ({"action_type": "multidiscrete"}, "action_type discrete in the checkpoint, multidiscrete in the environment"),
    ],
)
def test_an_environment_of_other_spaces_is_refused(checkpoint: Path, changes: dict[str, Any], said: str):
    spaces: Any = data_of(40).spaces | changes

    with pytest.raises(ConfigurationError, match=said):
        SACOptions(spaces, scripted_options=[CheckpointOption(str(checkpoint), 0)], controller=CONTROLLER, **NETS)


def test_a_checkpoint_of_another_algorithm_is_refused(tmp_path: Path):
    data = data_of(40)
    run = trainer(tmp_path)
    run.fit(SAC(data.spaces, **NETS), datamodule=data)
    run.save_checkpoint(tmp_path / "sac.ckpt")

    with pytest.raises(ConfigurationError, match="is a checkpoint of SAC; give one of SACOptions"):
        CheckpointOption(str(tmp_path / "sac.ckpt"), 0)


def test_the_folder_of_a_run_stands_for_its_best_checkpoint_else_its_last(checkpoint: Path, tmp_path: Path):
    saved = tmp_path / "run" / "checkpoints"
    saved.mkdir(parents=True)
    shutil.copy(checkpoint, saved / "last.ckpt")

    last = CheckpointOption(str(tmp_path / "run"), 2)
    (saved / "best-env_steps=80-return_mean=1.00.ckpt").write_bytes(checkpoint.read_bytes())
    (saved / "last.ckpt").unlink()

    assert last.option == CheckpointOption(str(tmp_path / "run"), 2).option == 2


@pytest.mark.parametrize(
    ("path", "said"),
    [("", "The path is empty, as that of the best"), ("s3://runs/a.ckpt", "s3://runs/a.ckpt is not a lo")],
)
def test_a_path_that_is_none_is_refused_also_where_runs_lie(
    checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, said: str
):
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    shutil.copy(checkpoint, tmp_path / "run" / "checkpoints" / "last.ckpt")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigurationError, match=said):
        CheckpointOption(path, 0)


def test_a_folder_without_a_checkpoint_is_refused_in_one_sentence(tmp_path: Path):
    with pytest.raises(ConfigurationError, match=f"There is no checkpoint in {tmp_path}: give a file, or"):
        CheckpointOption(str(tmp_path), 0)
