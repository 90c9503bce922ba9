import os
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from app.runs.checkpoints import Experiment, OptionDifference, different_options, experiment_from_config, misfit
from app.runs.find_checkpoint import find_checkpoint
from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.run_checkpoints import load_checkpoint

LOGGER = {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": "runs", "name": "small"}}


def saved(run: Path, name: str, at: int) -> Path:
    path = run / "checkpoints" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({"state_dict": {}, "callbacks": {}}, path)
    os.utime(path, (at, at))
    return path


def test_the_first_logger_says_where_an_experiment_keeps_its_runs() -> None:
    assert experiment_from_config({"logger": [LOGGER]}) == Experiment(Path("runs/small"), None)
    assert experiment_from_config({"default_root_dir": "here"}) == Experiment(Path("here/lightning_logs"), None)


@pytest.mark.parametrize("name", ["a/b", "../up", "a b", "x" * 65, "a\n", ".", ".."])
@pytest.mark.parametrize("key", ["name", "version"])
def test_a_run_name_that_is_no_plain_file_name_is_refused(key: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"The logger's {key} is"):
        experiment_from_config({"logger": {"init_args": {key: name}}})


def test_last_means_the_newest_run_that_has_one(tmp_path: Path) -> None:
    saved(tmp_path / "version_0", "last.ckpt", at=1)
    newest = saved(tmp_path / "version_1", "last.ckpt", at=2)
    (tmp_path / "version_2").mkdir()

    assert find_checkpoint("last", Experiment(tmp_path, None)) == newest


def test_best_means_the_highest_value_in_the_name(tmp_path: Path) -> None:
    saved(tmp_path / "version_0", "best-step=9-return=21.50.ckpt", at=3)
    best = saved(tmp_path / "version_0", "best-step=5-return=100.25.ckpt", at=2)
    saved(tmp_path / "version_0", "last.ckpt", at=4)

    assert find_checkpoint("best", Experiment(tmp_path, None)) == best


@pytest.mark.parametrize(
    ("mode", "best"), [("min", "best-step=5-loss=1.00.ckpt"), ("max", "best-step=9-loss=2.00.ckpt")]
)
def test_where_the_recorded_best_is_gone_the_next_best_of_its_mode_is_taken(
    tmp_path: Path, mode: Literal["min", "max"], best: str
) -> None:
    for name in ("best-step=5-loss=1.00.ckpt", "best-step=9-loss=2.00.ckpt"):
        saved(tmp_path / "version_0", name, at=1)
    last = saved(tmp_path / "version_0", "last.ckpt", at=2)
    key = RunCheckpoint("eval/loss", mode, save_top_k=3).state_key
    torch.save({"state_dict": {}, "callbacks": {key: {"best_model_path": "gone.ckpt"}}}, last)

    assert find_checkpoint("best", Experiment(tmp_path, None)).name == best


def test_without_a_last_checkpoint_the_newest_says_which_is_best(tmp_path: Path) -> None:
    best = saved(tmp_path / "version_0", "epoch=3.ckpt", at=1)
    newest = saved(tmp_path / "version_0", "best-step=9-loss=2.00.ckpt", at=2)
    torch.save({"state_dict": {}, "callbacks": {"ModelCheckpoint": {"best_model_path": best.name}}}, newest)

    assert find_checkpoint("best", Experiment(tmp_path, None)) == best


@pytest.mark.parametrize("name", ["epoch=0-step=5.ckpt", "best-step=5-loss=1.00.ckpt"])
def test_best_is_the_one_the_last_checkpoint_records_whatever_the_names_say(tmp_path: Path, name: str) -> None:
    best = saved(tmp_path / "version_0", name, at=1)
    saved(tmp_path / "version_0", "best-step=6-loss=2.00.ckpt", at=1)
    last = saved(tmp_path / "version_0", "last.ckpt", at=2)
    moved = {"ModelCheckpoint": {"best_model_path": f"elsewhere/{best.name}"}}
    torch.save({"state_dict": {}, "callbacks": moved}, last)

    assert find_checkpoint("best", Experiment(tmp_path, None)) == best


@pytest.mark.parametrize("wanted", ["last", "best", "nowhere.ckpt", "https://example.org/a.ckpt", "registry:a"])
def test_a_checkpoint_that_is_not_there_is_refused(tmp_path: Path, wanted: str) -> None:
    with pytest.raises(ConfigurationError, match="checkpoint"):
        find_checkpoint(wanted, Experiment(tmp_path, None))


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.ckpt").write_text("hello")
    torch.save([1, 2], tmp_path / "list.ckpt")

    for name in ("text.ckpt", "list.ckpt"):
        with pytest.raises(ConfigurationError, match=name):
            load_checkpoint(tmp_path / name)


def test_only_options_that_differ_are_told_and_lists_equal_tuples() -> None:
    checkpoint = {"hyper_parameters": {"gamma": 0.9, "hidden": (8, 8), "spaces": {}}}

    assert different_options(checkpoint, {"gamma": 0.8, "hidden": [8, 8], "gae_lambda": 1}) == [("gamma", 0.8, 0.9)]


def test_of_two_classes_that_are_the_same_the_arguments_are_compared() -> None:
    def network(**arguments: Any) -> dict[str, Any]:
        return {"network": {"class_path": "modules.networks.MLP", "init_args": arguments}}

    checkpoint = {"hyper_parameters": network(hidden=(8, 8), scale=1.0)}

    assert different_options(checkpoint, network(hidden=[9], scale=1.0)) == [("network.hidden", [9], [8, 8])]


def test_weights_that_do_not_fit_are_told_with_the_settings_that_shape_them() -> None:
    there, here = {"w": torch.zeros(8, 4), "b": torch.zeros(8)}, {"w": torch.zeros(9, 4), "b": torch.zeros(9)}
    differences = [OptionDifference("network.hidden", [9], [8]), OptionDifference("gamma", 0.8, 0.9)]

    told = misfit(Path("last.ckpt"), {"state_dict": there}, here, differences)

    assert told.startswith(
        "last.ckpt does not fit the model, because `w` is [8, 4] in the checkpoint and [9, 4] in the model"
    )
    assert told.endswith(
        "use the checkpoint's settings (model.network.hidden is [8] in the checkpoint and [9] in the model)."
    )
    assert "`b` is missing in the checkpoint" in misfit(
        Path("last.ckpt"), {"state_dict": {}}, {"b": torch.zeros(8)}, []
    )
