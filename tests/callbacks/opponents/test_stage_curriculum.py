"""Stages of a curriculum: promotion by success and by patience, resume, and what is refused."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback

from callbacks.opponents.stage_curriculum import StageCurriculum
from callbacks.performance.execution_summary import execution_summary
from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.tensor_files import load_tensors
from datamodules.envs.carball.chaser import Chaser
from datamodules.rollout import RolloutDataModule
from tests.support.small_runs import small_ppo, trainer

STAGES = ["1v1", "1v2", "2v2"]


def carball(iterations: int, **changes: Any) -> RolloutDataModule:
    settings: dict[str, Any] = {"policy_group": [0, 0, 1, 1], "opponents": [Chaser]}
    settings |= {"env_kwargs": {"mode": "2v2", "stages": STAGES, "time_limit": 8, "no_touch_limit": None}}
    settings |= {"eval_env_kwargs": {"stages": None}, "eval_episodes": 2, "num_envs": 4, "rollout_length": 8}
    return RolloutDataModule("Carball-v0", total_env_steps=32 * iterations, **{**settings, **changes})


class Stages(Callback):
    """Notes after every rollout how many cars played its last step."""

    def __init__(self) -> None:
        self.cars: list[int] = []
        self.evaluated: list[int] = []

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self.cars.append(int(trainer.datamodule.collector.envs.unwrapped.state["present"][0].sum()))
        self.summary = execution_summary(trainer, trainer.lightning_module)["environments"]

    def on_validation_end(self, trainer: Any, *_: Any) -> None:
        assert "present" not in trainer.datamodule._eval_envs.unwrapped.state
        self.evaluated.append(trainer.datamodule._eval_envs.unwrapped.env.cars)


def fit(root: Path, iterations: int, curriculum: StageCurriculum, ckpt_path: Path | None = None) -> tuple[Any, Stages]:
    torch.manual_seed(0)
    data, stages = carball(iterations), Stages()
    model = small_ppo(data, learning_rate_schedule="constant")
    run = trainer(root, RunCheckpoint(), curriculum, stages, log_every_n_steps=1, val_check_interval=2)
    run.fit(model, datamodule=data, ckpt_path=ckpt_path)
    return model, stages


def test_success_promotes_to_the_next_stage(tmp_path: Path) -> None:
    _, stages = fit(tmp_path, 5, StageCurriculum("rollout/length_mean", threshold=8.0, min_env_steps=0))

    assert stages.cars == [2, 3, 4, 4, 4]
    assert stages.evaluated == [4, 4], "evaluations play all cars"
    assert "stage 3 of 3 (2v2)" in stages.summary


def test_without_success_the_stage_stays(tmp_path: Path) -> None:
    _, stages = fit(tmp_path, 4, StageCurriculum("rollout/length_mean", threshold=9.0, min_env_steps=0))

    assert stages.cars == [2] * 4 and "stage 1 of 3 (1v1)" in stages.summary


def test_patience_promotes_where_nothing_rises(tmp_path: Path) -> None:
    curriculum = StageCurriculum("rollout/length_mean", threshold=9.0, patience=2, min_env_steps=0)
    model, stages = fit(tmp_path, 8, curriculum)

    assert stages.cars == [2, 2, 2, 3, 3, 3, 4, 4]
    assert model.last_logged["curriculum/stage"] == 3


def test_a_monitor_that_is_never_logged_is_named_with_those_that_are(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"no training log has its monitor rollout/goal; set .*rollout/length_mean"):
        fit(tmp_path, 2, StageCurriculum("rollout/goal", min_env_steps=0))


def test_a_monitor_that_is_never_logged_is_named_once_after_the_first_evaluation(tmp_path: Path) -> None:
    class Ends(Callback):
        def on_validation_end(self, trainer: Any, *_: Any) -> None:
            told.append(len(warned))

    told: list[int] = []
    curriculum, data = StageCurriculum("rollout/goal", min_env_steps=0), carball(6)
    run = trainer(tmp_path, RunCheckpoint(), curriculum, Ends(), log_every_n_steps=1, val_check_interval=2)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warned = NamedWarnings(found)
        run.fit(small_ppo(data), datamodule=data)

    assert told == [1, 1, 1] and len(warned) == 1


class NamedWarnings:
    """The recorded warnings of a curriculum."""

    def __init__(self, found: list[warnings.WarningMessage]) -> None:
        self.found = found

    def __len__(self) -> int:
        return sum("has its monitor rollout/goal;" in str(each.message) for each in self.found)


def test_a_stage_lasts_for_the_fewest_steps(tmp_path: Path) -> None:
    _, stages = fit(tmp_path, 5, StageCurriculum("rollout/length_mean", threshold=8.0, min_env_steps=64))

    assert stages.cars == [2, 2, 3, 3, 4]


def test_absent_cars_are_not_learned_from(tmp_path: Path) -> None:
    class Valid(Callback):
        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            self.valid = trainer.datamodule.collector.buffer.storage["valid"][0].view(4, 2).clone()

    data, valid = carball(1), Valid()
    trainer(tmp_path, StageCurriculum(threshold=2.0), valid).fit(small_ppo(data), datamodule=data)

    assert valid.valid.tolist() == [[True, False]] * 4


def test_a_resumed_run_goes_on_in_its_stage(tmp_path: Path) -> None:
    def curriculum() -> StageCurriculum:
        return StageCurriculum("rollout/length_mean", threshold=9.0, patience=2, min_env_steps=0)

    whole, _ = fit(tmp_path / "whole", 8, curriculum())
    fit(tmp_path / "half", 5, curriculum())
    resumed, stages = fit(tmp_path / "rest", 8, curriculum(), tmp_path / "half/checkpoints/last.ckpt")

    assert stages.cars == [3, 4, 4]
    last = load_tensors(tmp_path / "rest/checkpoints/last.ckpt", cure="")["state_dict"]
    assert all(torch.equal(leaf, last[name]) for name, leaf in whole.state_dict().items())
    assert all(torch.equal(leaf, last[name]) for name, leaf in resumed.state_dict().items())


def test_bad_settings_are_refused(tmp_path: Path) -> None:
    for settings, said in (
        ({"patience": 0}, "patience 0; choose at least 1"),
        ({"min_env_steps": -1}, "min_env_steps -1;"),
    ):
        with pytest.raises(ConfigurationError, match=f"^StageCurriculum has {said}"):
            StageCurriculum(**settings)
    whole = {"mode": "2v2", "stages": STAGES}
    for changes, said in (
        ({"env_kwargs": {"mode": "2v2"}}, "Carball-v0 has none: set stages"),
        ({"env_kwargs": whole, "eval_env_kwargs": {}}, "play the first stage only"),
        ({"policy_lag": 1}, r"needs data\.policy_lag 0"),
    ):
        data = carball(1, **changes)
        with pytest.raises(ConfigurationError, match=said):
            trainer(tmp_path, StageCurriculum()).fit(small_ppo(data), datamodule=data)
