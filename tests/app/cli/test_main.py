import json
import logging
import os
import re
import resource
import signal
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from lightning.pytorch.utilities import rank_zero_info
from torch.utils.tensorboard import SummaryWriter

from app.cli.main import report_thread_error
from datamodules.core.signals import STOP_SIGNALS
from tests.app.conftest import Outcome, Run
from tests.support.fake_algorithm import Walker


def fit(run: Run, *words: str) -> Outcome:
    return run("fit", "--config", "small.yaml", *words)


def test_fit_links_spaces_and_writes_config_and_checkpoints(run: Run, folder: Path) -> None:
    outcome = fit(run)

    version = folder / "runs" / "small" / "version_0"
    assert outcome.code == 0
    assert (version / "checkpoints" / "last.ckpt").is_file()
    assert yaml.safe_load((version / "config.yaml").read_text())["seed_everything"] == 1
    assert torch.load(version / "checkpoints" / "last.ckpt", weights_only=True)["spaces"]["obs_shape"] == (4,)


def test_a_fit_installs_hand_written_gradients_where_there_are_any(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("modules.manual_backward.callback.install", asked.append)

    fit(run)

    assert [type(model) for model in asked] == [Walker]


def test_print_config_shows_short_forms_and_later_words_win(run: Run) -> None:
    outcome = fit(
        run, "--model.learning_rate", "1e-3", "--data.num_envs", "64", "--data.num_envs", "65", "--print_config"
    )

    config = yaml.safe_load(outcome.out)
    assert config["model"]["init_args"]["learning_rate"] == 1e-3
    assert config["data"]["init_args"]["num_envs"] == 65
    assert config["trainer"]["max_epochs"] == 1


def test_an_option_on_the_command_line_wins_over_the_checkpoints_aloud(
    run: Run, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "lightning.pytorch")
    fit(run, "--trainer.limit_train_batches", "2")

    outcome = fit(run, "--ckpt_path", "last", "--model.learning_rate", "0.5")

    resumed = yaml.safe_load((folder / "runs" / "small" / "version_1" / "config.yaml").read_text())
    assert outcome.code == 0
    assert resumed["model"]["init_args"]["learning_rate"] == 0.5
    assert "model.learning_rate is 0.5 in the configuration and 0.01 in the checkpoint; 0.5 is used." in caplog.messages


@pytest.mark.parametrize("wanted", ["last", "runs/small"])
def test_a_finished_run_is_not_trained_on_silently_and_leaves_no_folder(run: Run, folder: Path, wanted: str) -> None:
    fit(run)

    outcome = fit(run, "--ckpt_path", wanted)

    assert outcome.code == 2
    assert [path.name for path in (folder / "runs" / "small").iterdir()] == ["version_0"]
    assert "This run is finished" in outcome.err and "raise data.total_env_steps" in outcome.err


def test_a_checkpoint_of_weights_only_is_not_resumed_from(run: Run, folder: Path) -> None:
    fit(run)
    path = folder / "runs" / "small" / "version_0" / "checkpoints" / "last.ckpt"
    content = torch.load(path, weights_only=True)
    del content["optimizer_states"]
    torch.save(content, folder / "weights.ckpt")

    outcome = fit(run, "--ckpt_path", "weights.ckpt")

    assert outcome.code == 2 and "weights.ckpt has weights only" in outcome.err
    assert run("test", "--config", "small.yaml", "--ckpt_path", "weights.ckpt").code == 0


def test_a_run_that_is_refused_in_its_setup_leaves_no_folder(run: Run, folder: Path) -> None:
    outcome = run("fit", "--config", "ppo_cartpole.yaml", "--model.num_minibatches", "7")

    assert outcome.code == 2 and "model.num_minibatches is 7" in outcome.err
    assert not list((folder / "runs").iterdir())


def test_a_run_that_crashes_before_it_logged_anything_leaves_no_folder(run: Run, folder: Path) -> None:
    with pytest.raises(RuntimeError, match="a bug on the way"):
        fit(run, "--model.update_epochs", "14")

    assert not list((folder / "runs").iterdir())


def test_information_and_warnings_cannot_steer_the_terminal(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    fit(run)  # as every run of the program does

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        shown = warnings.formatwarning("column \x1b[31mred", UserWarning, "a.py", 1)
    caplog.set_level(logging.INFO, "lightning.pytorch")
    rank_zero_info("model.gamma is %s here", "\x1b[31mred")

    assert "column [31mred" in shown and "\x1b" not in shown
    assert "model.gamma is [31mred here" in caplog.messages


@pytest.mark.parametrize("number", STOP_SIGNALS)
@pytest.mark.parametrize("moment", ["setup", "on_fit_start", "on_fit_end", "teardown"])
def test_a_signal_before_or_after_training_exits_with_its_code(
    run: Run, monkeypatch: pytest.MonkeyPatch, moment: str, number: signal.Signals
) -> None:
    def signalled(self: Walker, *args: Any, **kwargs: Any) -> None:
        os.kill(os.getpid(), number)

    before = [signal.getsignal(each) for each in STOP_SIGNALS]
    monkeypatch.setattr(Walker, moment, signalled)

    outcome = fit(run)

    assert outcome.code == 128 + number
    assert [signal.getsignal(each) for each in STOP_SIGNALS] == before


@pytest.mark.parametrize(
    "settings",
    [
        {"save_dir": ".", "name": "", "version": ""},
        {"save_dir": "$PLACE", "version": "mine"},
        {"save_dir": "~/", "version": "mine"},
        {"save_dir": "$PLACE", "name": "", "version": "mine"},
    ],
)
def test_a_run_that_crashes_removes_nothing_that_was_there(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    monkeypatch.setenv("PLACE", str(folder))
    monkeypatch.setenv("HOME", str(folder))
    for place in (".git", "small/mine", "mine"):
        (folder / place).mkdir(parents=True)
        (folder / place / "notes").touch()
    before = set(folder.rglob("*"))

    with pytest.raises(RuntimeError, match="a bug on the way"):
        fit(run, "--model.update_epochs", "14", *(f"--trainer.logger.{key}={value}" for key, value in settings.items()))

    assert before <= set(folder.rglob("*"))


@pytest.mark.parametrize("make", ["CSVLogger", "TensorBoardLogger"])
def test_a_home_in_the_save_dir_is_one_folder_for_everything(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, make: str
) -> None:
    monkeypatch.setenv("HOME", str(folder / "home"))
    logger = {"class_path": f"lightning.pytorch.loggers.{make}", "init_args": {"save_dir": "~/runs", "name": "a"}}

    outcome = fit(run, "--trainer.logger", json.dumps(logger))

    run_folder = folder / "home" / "runs" / "a" / "version_0"
    assert outcome.code == 0 and {path.name for path in folder.iterdir()} == {"small.yaml", "home"}
    assert (run_folder / "config.yaml").is_file() and (run_folder / "checkpoints" / "last.ckpt").is_file()


@pytest.mark.parametrize("wanted", ["last", "best", "runs/small", "runs/small/version_0"])
def test_an_evaluation_makes_no_run_folder(run: Run, folder: Path, wanted: str) -> None:
    fit(run)
    before = set(folder.rglob("*"))

    outcome = run("test", "--config", "small.yaml", "--ckpt_path", wanted)

    assert outcome.code == 0
    assert {path.name for path in set(folder.rglob("*")) - before} == {"metrics.json"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--model", "tests.support.fake_algorithm.Runner"],
            "There is no `last` checkpoint of tests.support.fake_algorithm.Runner in runs/small",
        ),
        (["--data.env", "Wide-v0"], "obs_shape (4,) in the checkpoint, (9,) in the configuration"),
    ],
    ids=["of another algorithm", "of other spaces"],
)
def test_a_checkpoint_that_cannot_be_used_is_refused_before_its_options_are_compared(
    run: Run, caplog: pytest.LogCaptureFixture, words: list[str], sentence: str
) -> None:
    caplog.set_level(logging.INFO, "lightning.pytorch")
    fit(run)

    outcome = fit(run, "--ckpt_path", "last", "--model.learning_rate", "0.5", *words)

    assert outcome.code == 2 and sentence in outcome.err
    assert not [message for message in caplog.messages if "in the checkpoint" in message]


@pytest.mark.parametrize(("words", "saved"), [([], []), (["--trainer.default_root_dir", "here"], ["here"])])
def test_without_a_logger_the_config_is_saved_only_in_a_folder_that_was_named(
    run: Run, folder: Path, words: list[str], saved: list[str]
) -> None:
    (folder / "config.yaml").write_text("mine\n")

    outcome = fit(run, "--trainer.logger", "false", *words)

    assert outcome.code == 0 and (folder / "config.yaml").read_text() == "mine\n"
    assert [path.parent.name for path in folder.glob("*/config.yaml")] == saved


def test_a_checkpoint_of_another_size_is_one_sentence(run: Run, folder: Path) -> None:
    fit(run, "--model.network.hidden", "[8]", "--trainer.limit_train_batches", "2")

    outcome = fit(run, "--ckpt_path", "last", "--model.network.hidden", "[9]")

    assert (
        outcome.code == 2
        and "`network.layer.weight` is [8, 4] in the checkpoint and [9, 4] in the model" in outcome.err
    )
    assert "model.network.hidden is [8] in the checkpoint and [9] in the model" in outcome.err
    assert [path.name for path in (folder / "runs" / "small").iterdir()] == ["version_0"]


REFUSED = {
    "a value the data refuses": (["--data.num_envs", "0"], "data.num_envs is 0; it must be at least 1."),
    "a value the model refuses": (["--model.update_epochs", "0"], "model.update_epochs is 0; it must be at least 1."),
    "float16 on a CPU": (["--trainer.precision", "16-mixed"], "16-mixed needs a GPU: use bf16-mixed or 32-true"),
    "Trainer clipping": (["--trainer.gradient_clip_val", "0.5"], "use `--model.max_grad_norm`"),
    "Trainer accumulation": (["--trainer.accumulate_grad_batches", "2"], "own `update`"),
    "a run name that leaves the folder": (["--trainer.logger.name", "../up"], "The logger's name is `../up`"),
    "a run folder below a file": (["--trainer.logger.save_dir", "small.yaml"], "is a file"),
    "no run to resume": (
        ["--ckpt_path", "last"],
        "There is no `last` checkpoint of tests.support.fake_algorithm.Walker in runs/small",
    ),
    "an unknown strategy": (["--trainer.strategy", "fast"], "invalid strategy name"),
}


@pytest.mark.parametrize(("words", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_bad_value_is_one_sentence(run: Run, words: list[str], sentence: str) -> None:
    outcome = fit(run, *words)

    assert outcome.code == 2
    assert sentence in outcome.err.splitlines()[-1]
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    "message",
    [
        "The AccumulateGrad node's stream does not match the stream of the node that produced the incoming gradient.",
        "TensorFloat32 tensor cores for float32 matrix multiplication available but not enabled. Consider setting",
    ],
)
def test_warnings_of_captured_and_compiled_runs_that_nobody_can_act_on_are_not_shown(run: Run, message: str) -> None:
    with warnings.catch_warnings(record=True) as shown:
        run("fit", "--config", "small.yaml", "--print_config")
        warnings.warn(message, stacklevel=1)
        warnings.warn("worth a look", stacklevel=1)

    assert [str(warning.message) for warning in shown] == ["worth a look"]


def test_a_real_bug_keeps_its_traceback(run: Run) -> None:
    with pytest.raises(RuntimeError, match="a real bug") as bug:
        fit(run, "--model.update_epochs", "13")

    assert bug.traceback[-1].path.name == "fake_algorithm.py"


@pytest.mark.parametrize(
    ("words", "value"), [("1e2", 100), ("1.5e+1", 15), ("2E0", 2), ("64", 64), ("9007199254740993", 9007199254740993)]
)
def test_a_whole_number_can_be_written_with_an_exponent(run: Run, folder: Path, words: str, value: int) -> None:
    told = fit(run, "--data.num_envs", words, "--trainer.max_steps", words, "--print_config")
    text = (folder / "small.yaml").read_text().replace("    env:", f"    num_envs: {words}\n    env:")
    (folder / "small.yaml").write_text(text.replace("trainer:", f"trainer:\n  max_steps: {words}"))
    written = fit(run, "--print_config")

    for config in (yaml.safe_load(told.out), yaml.safe_load(written.out)):
        assert config["data"]["init_args"]["num_envs"] == config["trainer"]["max_steps"] == value
        assert type(config["data"]["init_args"]["num_envs"]) is int


def test_where_fractions_count_a_float_stays_one(run: Run) -> None:
    config = yaml.safe_load(fit(run, "--trainer.limit_val_batches", "1.0", "--print_config").out)

    assert type(config["trainer"]["limit_val_batches"]) is float


@pytest.mark.parametrize(
    ("config", "env", "able"),
    [
        ("dqn_cartpole.yaml", "Pendulum-v1", "PPO or .*SAC"),
        ("sac_pendulum.yaml", "tests.support.fake_algorithm.Switches", "modules.PPO"),
    ],
)
def test_the_command_line_refuses_an_environment_that_its_algorithm_cannot_act_in(
    run: Run, config: str, env: str, able: str
) -> None:
    told = run("fit", "--config", config, "--data.env", env, "--trust", "tests")
    assert told.code == 2
    assert re.fullmatch(rf"\w+ cannot act in this environment, .*: use .*{able}.*\.\n", told.err)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--trainer.logger", "false", "--trainer.default_root_dir", "/proc"), "choose another default_root_dir"),
        (("--trainer.logger.save_dir", "/proc/a"), "The folder /proc/a cannot be written"),
        (("--trainer.callbacks.dirpath", "/proc/a"), "choose another dirpath"),
        (("--trainer.callbacks.dirpath", "small.yaml"), "small.yaml is a file: choose another dirpath"),
        (("--trainer.logger.save_dir", "a\0"), "has a NUL character"),
    ],
)
def test_a_run_does_not_begin_where_it_cannot_write(run: Run, folder: Path, words: Any, sentence: str) -> None:
    outcome = fit(run, *words)

    assert outcome.code == 2 and outcome.err.count("\n") == 1 and sentence in outcome.err
    assert [path.name for path in folder.iterdir()] == ["small.yaml"]


def test_event_files_on_a_full_disk_raise_once_and_print_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", report_thread_error)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            writer = SummaryWriter(tmp_path)
            for step in range(20):
                writer.add_scalar("loss", 1.0, step)
                writer.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert "Traceback" not in capsys.readouterr().err


def test_the_config_of_a_run_finds_its_best_checkpoint_with_a_wrapper_that_takes_a_class(
    run: Run, folder: Path
) -> None:
    small = "--data.num_envs 2 --data.rollout_length 4 --data.total_env_steps 8 --data.eval_max_steps 5"
    words = f"--model PPO --model.num_minibatches 1 --data RolloutDataModule --data.env CartPole-v1 {small}".split()
    once = ["--trainer.val_check_interval", "1", "--trainer.accelerator", "cpu", "--trainer.logger.name", "small"]

    fitted = run("fit", *words, *once, "--data.wrappers", "[tests.support.class_wrapper.Clocked]")
    config = "runs/small/version_0/config.yaml"
    outcome = run("predict", "--config", config, "--ckpt_path", "best")

    assert (fitted.code, outcome.code) == (0, 0), outcome.err
