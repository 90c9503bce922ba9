import os
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from app.runs.run_folder import RunFolders, expand_settings, lock_folder
from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.core.errors import ConfigurationError

LOGGERS = (TensorBoardLogger, CSVLogger)


def trainer_with(*loggers: Any, **settings: Any) -> Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    return Trainer(logger=list(loggers) or False, callbacks=[RunCheckpoint()], **(quiet | settings))


@pytest.mark.parametrize("make", LOGGERS)
def test_two_runs_that_read_the_same_next_version_get_two_folders(tmp_path: Path, make: Any) -> None:
    first, second = make(tmp_path, name="small"), make(tmp_path, name="small")
    assert first._get_next_version() == second._get_next_version() == 0
    second._get_next_version = lambda: 0  # as if it had looked before the first made its folder

    held = [RunFolders(trainer_with(logger), "fit") for logger in (first, second)]

    assert [Path(logger.log_dir).name for logger in (first, second)] == ["version_0", "version_1"]
    held[1].remove()
    assert [path.name for path in (tmp_path / "small").iterdir()] == ["version_0"]
    held[0].remove()
    assert not list(tmp_path.iterdir())


def test_a_file_and_a_broken_link_named_like_versions_are_stepped_over(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "version_0").touch()
    (tmp_path / "small" / "version_1").symlink_to("nowhere")
    logger = CSVLogger(tmp_path, name="small")

    RunFolders(trainer_with(logger), "fit").release()

    assert logger.version == 2


def test_two_loggers_of_a_run_share_a_version_and_other_places_have_their_own(tmp_path: Path) -> None:
    (tmp_path / "there" / "version_4").mkdir(parents=True)
    loggers = [make(tmp_path, name=name) for make, name in zip((*LOGGERS, CSVLogger), ("a", "a", "there"), strict=True)]

    RunFolders(trainer_with(*loggers), "fit").remove()

    assert [logger.version for logger in loggers] == [0, 0, 5]
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("version", ["mine", "", 3])
@pytest.mark.parametrize("make", LOGGERS)
def test_an_existing_folder_stays_as_it_was_when_the_run_fails(tmp_path: Path, make: Any, version: Any) -> None:
    logger = make(tmp_path, name="small", version=version)
    notes = Path(logger.log_dir) / "config.yaml"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine\n")

    RunFolders(trainer_with(logger), "fit").remove()

    assert notes.read_text() == "mine\n"


def test_of_a_folder_that_was_made_only_what_the_run_wrote_is_removed(tmp_path: Path) -> None:
    logger = TensorBoardLogger(tmp_path, name="small", sub_dir="deep/events")
    folders = RunFolders(trainer_with(logger), "fit")
    logger.experiment.add_scalar("a", 1.0)
    logger.finalize("failed")
    (Path(logger.log_dir) / "config.yaml").touch()
    run = tmp_path / "small" / "version_0"
    (run / "notes.txt").touch()
    (run / "version_0").mkdir()
    (run / "version_0" / "config.yaml").touch()

    folders.remove()

    assert sorted(path.name for path in run.rglob("*")) == ["config.yaml", "notes.txt", "version_0"]


def test_a_folder_with_a_checkpoint_stays(tmp_path: Path) -> None:
    folders = RunFolders(trainer_with(logger := CSVLogger(tmp_path)), "fit")
    saved = Path(logger.log_dir) / "checkpoints" / "last.ckpt"
    saved.parent.mkdir()
    saved.touch()

    folders.remove()

    assert saved.is_file()


@pytest.mark.parametrize("named", [{"version": "mine"}, None])
def test_a_named_folder_is_one_runs_at_a_time(tmp_path: Path, named: Any) -> None:
    def claim(verb: str = "fit") -> RunFolders:
        loggers = [CSVLogger(tmp_path, **named)] if named else []
        return RunFolders(trainer_with(*loggers, default_root_dir=tmp_path), verb)

    first = claim()

    with pytest.raises(ConfigurationError, match="is in use by another run"):
        claim()
    claim("test")
    first.release()
    claim().release()


def test_a_child_does_not_keep_the_lock_of_a_parent(tmp_path: Path) -> None:
    lock = lock_folder(tmp_path)
    assert lock is not None
    with subprocess.Popen(["sleep", "30"], preexec_fn=lambda: None) as child:  # which forks, so that locks are closed
        os.close(lock)
        again = lock_folder(tmp_path)
        child.kill()

    assert again is not None


def test_the_checkpoints_of_another_run_are_not_replaced(tmp_path: Path) -> None:
    def claim(resumed: Path | None) -> None:
        RunFolders(trainer_with(CSVLogger(tmp_path, version=0)), "fit", resumed).release()

    last = tmp_path / "lightning_logs" / "version_0" / "checkpoints" / "last.ckpt"
    last.parent.mkdir(parents=True)
    last.touch()

    for resumed in (None, tmp_path / "last.ckpt"):
        with pytest.raises(ConfigurationError, match="holds checkpoints of another run"):
            claim(resumed)
    claim(last)


def test_the_metrics_of_an_earlier_run_in_a_named_folder_stay(tmp_path: Path) -> None:
    for text in ("first", "second"):
        logger = CSVLogger(tmp_path, name="", version="mine")
        RunFolders(trainer_with(logger), "fit").release()
        logger.log_metrics({text: 1.0}, step=0)
        logger.save()

    found = {path.name: path.read_text().split(",")[0] for path in (tmp_path / "mine").glob("*.csv")}
    assert found == {"metrics-1.csv": "first", "metrics.csv": "second"}


@pytest.mark.parametrize(("key", "value"), [("name", "../up"), ("version", "../../up"), ("sub_dir", "../up")])
def test_a_logger_that_leaves_its_folder_is_refused(tmp_path: Path, key: str, value: str) -> None:
    loggers = [CSVLogger(tmp_path / "a"), TensorBoardLogger(tmp_path / "a", **{key: value})]  # type: ignore[arg-type]

    with pytest.raises(ConfigurationError, match=r"leaves its save_dir"):
        RunFolders(trainer_with(*loggers), "fit")

    assert [path.name for path in tmp_path.rglob("*")] == ["a"]


def test_homes_and_variables_are_expanded_wherever_a_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "/data")
    monkeypatch.setenv("HOME", "/me")
    logger = Namespace(class_path="x", init_args=Namespace(save_dir="~/runs", name="~", sub_dir="a/b"))
    settings = Namespace(
        trainer=Namespace(default_root_dir="${PLACE}/here", logger=[logger]), data=Namespace(storage_folder="$PLACE")
    )

    expand_settings(settings)

    assert vars(logger.init_args) == {"save_dir": "/me/runs", "name": "~", "sub_dir": "a/b"}
    assert settings.trainer.default_root_dir == "/data/here" and settings.data.storage_folder == "/data"


@pytest.mark.parametrize("sub_dir", ["/up", "../up", "a/../../up", "$UP"])
def test_a_sub_dir_that_leaves_the_run_folder_is_refused(monkeypatch: pytest.MonkeyPatch, sub_dir: str) -> None:
    monkeypatch.setenv("UP", "../up")

    with pytest.raises(ConfigurationError, match="sub_dir"):
        expand_settings(Namespace(logger=Namespace(sub_dir=sub_dir)))
