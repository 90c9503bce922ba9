"""Which file `last` and `best` mean."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from app.runs import find_checkpoint as module
from app.runs.checkpoints import Experiment
from app.runs.find_checkpoint import find_checkpoint
from callbacks.run_control.checkpoint import AtomicCheckpointIO
from datamodules.core.errors import ConfigurationError


def saved(run: Path, name: str, step: int = 1, score: float = 0.0, env: str = "A") -> Path:
    path = run / "checkpoints" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {"best_model_path": "", "best_k_models": {str(path): torch.tensor(score)}, "monitor": "eval/return_mean"}
    content: dict[str, Any] = {"state_dict": {}, "global_step": step, "callbacks": {"RunCheckpoint": state}}
    AtomicCheckpointIO().save_checkpoint(content | {"datamodule_hyper_parameters": {"env": env}}, path)
    return path


def found(wanted: str, folder: Path, env: str | None = None) -> Path:
    return find_checkpoint(wanted, Experiment(folder, None), None if env is None else [env, {}])


@pytest.mark.parametrize(("wanted", "name"), [("last", "last.ckpt"), ("best", "best-1.ckpt")])
def test_the_highest_version_counts_not_the_clock(tmp_path: Path, wanted: str, name: str) -> None:
    for number in (2, 9, 10):
        path = saved(tmp_path / f"version_{number}", name, step=20 - number)
        os.utime(path, (1_000 - number,) * 2)

    assert found(wanted, tmp_path) == tmp_path / "version_10" / "checkpoints" / name


def test_runs_with_other_names_come_after_versions_and_by_iteration(tmp_path: Path) -> None:
    saved(tmp_path / "mine", "last.ckpt", step=99)
    longest = saved(tmp_path / "alpha", "last.ckpt", step=100)
    assert found("last", tmp_path) == longest

    assert saved(tmp_path / "version_0", "last.ckpt") == found("last", tmp_path)


def test_a_stray_file_and_a_broken_link_do_not_count(tmp_path: Path) -> None:
    last = saved(tmp_path / "version_0", "last.ckpt", step=5)
    saved(tmp_path / "version_0", "last-mine.ckpt", step=9)
    (tmp_path / "version_1" / "checkpoints").mkdir(parents=True)
    (tmp_path / "version_1" / "checkpoints" / "last.ckpt").symlink_to("gone.ckpt")

    with pytest.warns(UserWarning, match="link to a file that is gone"):
        assert found("last", tmp_path) == last


def test_of_a_folder_with_several_runs_the_newest_last_counts(tmp_path: Path) -> None:
    for name in ("last.ckpt", "last-v2.ckpt", "last-v1.ckpt"):
        saved(tmp_path / "version_0", name)

    assert found("last", tmp_path).name == "last-v2.ckpt"


@pytest.mark.parametrize("wanted", ["last", "best"])
def test_damaged_checkpoints_are_passed_over_with_a_warning(tmp_path: Path, wanted: str) -> None:
    good = saved(tmp_path / "version_0", f"{wanted}.ckpt")
    for number, content in ((1, b""), (2, b"hello"), (3, good.read_bytes()[:-9])):
        saved(tmp_path / f"version_{number}", f"{wanted}.ckpt").write_bytes(content)

    with pytest.warns(UserWarning, match=r"version_3.* is damaged"):
        assert found(wanted, tmp_path) == good


def test_best_has_the_highest_score_of_its_index(tmp_path: Path) -> None:
    scores = {"best-9.00.ckpt": 1.0, "best-8.00.ckpt": 3.0, "best-1.00.ckpt": 2.0}
    for name, score in scores.items():
        saved(tmp_path / "version_0", name, score=score)

    assert found("best", tmp_path).name == "best-8.00.ckpt"


def test_best_is_of_the_same_environment(tmp_path: Path) -> None:
    here = saved(tmp_path / "version_0", "best-1.00.ckpt", env="A")
    saved(tmp_path / "version_1", "best-2.00.ckpt", env="B")

    assert found("best", tmp_path, "A") == here
    with pytest.raises(ConfigurationError, match="no `best` checkpoint of this environment"):
        found("best", tmp_path, "C")


def test_choosing_among_many_versions_loads_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        saved(tmp_path / f"version_{number}", "last.ckpt", env="A" if number == 0 else "B")
    best = saved(tmp_path / "version_0", "best-1.00.ckpt")
    loaded: list[Path] = []
    monkeypatch.setattr(module, "load_checkpoint", loaded.append)

    assert found("best", tmp_path, "A") == best and not loaded


@pytest.mark.parametrize(("wanted", "name"), [("last", "last.ckpt"), ("best", "best-1.ckpt")])
def test_a_run_of_another_algorithm_is_passed_over(tmp_path: Path, wanted: str, name: str) -> None:
    for number, algorithm in enumerate(("modules.PPO", "mine.Reinforce")):
        path = saved(tmp_path / f"version_{number}", name)
        content = torch.load(path, weights_only=True) | {"hyper_parameters": {"_class_path": algorithm}}
        AtomicCheckpointIO().save_checkpoint(content, path)
        path.with_name(f"{name}.json").unlink(missing_ok=True)

    chosen = find_checkpoint(wanted, Experiment(tmp_path, None), None, "modules.ppo.ppo.PPO")

    assert chosen.parts[-3] == "version_0"


@pytest.mark.parametrize("below", ["", "version_1", "version_1/checkpoints"])
def test_a_folder_means_its_last_checkpoint_to_resume_and_its_best_to_evaluate(tmp_path: Path, below: str) -> None:
    for number in (0, 1):
        last, best = (saved(tmp_path / f"version_{number}", name) for name in ("last.ckpt", "best-1.00.ckpt"))
    elsewhere = Experiment(tmp_path / "other", None)

    assert find_checkpoint(str(tmp_path / below), elsewhere, resumes=True) == last
    assert find_checkpoint(str(tmp_path / below), elsewhere) == best


def test_a_folder_without_checkpoints_is_refused(tmp_path: Path) -> None:
    for resumes, what in ((True, "`last` checkpoint"), (False, "checkpoint")):
        with pytest.raises(ConfigurationError, match=f"There is no {what} in {tmp_path}: "):
            find_checkpoint(str(tmp_path), Experiment(tmp_path, None), resumes=resumes)
