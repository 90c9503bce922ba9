"""Settings that every run shares: `configs/trainer.yaml` below each config, and callbacks that no config leaves out."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from lightning.pytorch.callbacks import ModelCheckpoint

from app.cli.config_files import SHARED, configs_folder
from app.cli.trainer_settings import missing_callbacks, run_name
from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.divergence_guard import DivergenceGuard
from tests.app.conftest import Run

BARE = """
model: {class_path: modules.PPO}
data: {class_path: datamodules.RolloutDataModule, init_args: {env: CartPole-v1}}
"""


@pytest.fixture
def bare(folder: Path) -> str:
    (folder / "mine.yaml").write_text(BARE)
    return "mine.yaml"


def trainer(run: Run, *words: str) -> dict[str, Any]:
    return yaml.safe_load(run("fit", *words, "--print_config").out)["trainer"]


def names(settings: dict[str, Any]) -> list[str]:
    return [each["class_path"].rpartition(".")[2] for each in settings["callbacks"]]


def test_a_config_without_trainer_settings_gets_the_shared_ones_and_its_own_name(run: Run, bare: str) -> None:
    shared = yaml.safe_load((configs_folder() / SHARED).read_text())["trainer"]

    settings = trainer(run, "--config", bare)

    assert names(settings) == names(shared)
    assert settings["logger"]["init_args"]["name"] == "mine"
    assert settings["logger"]["init_args"]["save_dir"] == "runs"
    for key in shared.keys() - {"callbacks", "logger"}:
        assert settings[key] == shared[key]


def test_the_command_line_overrides_a_shared_setting(run: Run, bare: str) -> None:
    settings = trainer(run, "--config", bare, "--trainer.max_epochs", "2", "--trainer.logger.name", "other")

    assert settings["max_epochs"] == 2
    assert settings["logger"]["init_args"]["name"] == "other"


def test_an_appended_callback_of_a_shared_class_takes_its_place(run: Run, bare: str) -> None:
    words = ("--trainer.callbacks+", "Compile", "--trainer.callbacks.mode", "off", "--trainer.callbacks+", "GPUMonitor")

    settings = trainer(run, "--config", bare, *words)

    assert names(settings) == [*names(trainer(run, "--config", bare)), "GPUMonitor"]
    assert settings["callbacks"][0]["init_args"]["mode"] == "off"


def test_a_list_that_replaces_the_shared_callbacks_says_what_is_missing(
    run: Run, bare: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "own.yaml").write_text("trainer: {callbacks: [Compile, GPUMonitor], fast_dev_run: 1, accelerator: cpu}")

    run("fit", "--config", bare, "--config", "own.yaml")

    said = caplog.text
    assert "`trainer.callbacks` (own.yaml) replaces the shared callbacks" in said
    assert "without ThreadTuner, ExecutionSummary, TrainingProgress, Throughput. Write `callbacks+:`" in said


@pytest.mark.parametrize("configured", [[], [RunCheckpoint()], [ModelCheckpoint()], [DivergenceGuard()]])
def test_a_run_always_saves_and_stops_when_it_diverges(configured: list[Any]) -> None:
    callbacks = configured + missing_callbacks(configured, has_checkpoints=True)

    assert sum(isinstance(each, ModelCheckpoint) for each in callbacks) == 1
    assert sum(isinstance(each, DivergenceGuard) for each in callbacks) == 1


def test_no_checkpoint_is_added_to_a_run_without_checkpoints() -> None:
    assert not any(isinstance(each, RunCheckpoint) for each in missing_callbacks([], has_checkpoints=False))


def test_lightnings_switches_act_on_shared_callbacks(folder: Path, run: Run, bare: str) -> None:
    one = ("fit", "--config", bare, "--data.total_env_steps=1", "--data.eval_episodes=1", "--trainer.accelerator=cpu")

    said = run(*one, "--trainer.enable_progress_bar=false", "--trainer.enable_checkpointing=false")

    assert said.code == 0 and "env steps," not in said.out and not [*folder.rglob("*.ckpt")]
    assert "env steps," in run(*one).out and [*folder.rglob("last.ckpt")]


def test_a_run_is_named_after_its_first_config_in_letters_that_folders_allow(folder: Path) -> None:
    (folder / "my run.yaml").write_text(BARE)

    assert run_name(["fit", "--config", "my run.yaml", "--config", "small.yaml"]) == "my_run"
    assert run_name(["fit", "--model", "mine.Reinforce", "--model.lr", "1"]) == "Reinforce"
    assert run_name(["fit", "--data", "RolloutDataModule"]) is None
