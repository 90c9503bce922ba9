"""What a run prints can be pasted."""

import shlex
import sys
from pathlib import Path

import pytest

from app.runs.commands import Commands, python, without_checkpoint
from tests.app.conftest import Run

TENSORBOARD = "lightning.pytorch.loggers.TensorBoardLogger"


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--trainer.logger.save_dir", "a folder"),
        ("--trainer.logger", "false"),
        ("--trainer.logger", "false", "--trainer.default_root_dir", "it's here"),
        ("--trainer.logger", f'{{"class_path": "{TENSORBOARD}", "init_args": {{"save_dir": "~/a", "sub_dir": "b"}}}}'),
    ],
)
def test_the_replay_command_of_a_run_runs(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HOME", str(folder / "my home"))
    out = run("fit", "--config", "small.yaml", *words).out
    (line,) = [line for line in out.splitlines() if "; replay: " in line]

    interpreter, *rest = shlex.split(line.partition("; replay: ")[2])
    replayed = run(*rest[2:])

    assert replayed.code == 0, replayed.err
    assert rest[:2] == ["-m", "app"] and Path(interpreter).name.startswith("python")
    assert rest[-4:-1] == ["--trust", "tests", "--ckpt_path"] and (folder / rest[-1]).is_file()


def test_an_earlier_config_in_a_named_folder_stays(run: Run, folder: Path) -> None:
    (folder / "runs" / "small" / "mine").mkdir(parents=True)
    (folder / "runs" / "small" / "mine" / "config.yaml").write_text("mine\n")

    assert run("fit", "--config", "small.yaml", "--trainer.logger.version", "mine").code == 0

    assert (folder / "runs" / "small" / "mine" / "config-1.yaml").read_text() == "mine\n"


def test_without_saved_settings_the_command_repeats_the_words_but_the_checkpoint() -> None:
    words = ["--config", "a b.yaml", "--ckpt_path", "last", "--model.gamma=0.9", "--ckpt_path=x"]

    said = Commands(words, ["my_env"]).command("test", "$it.ckpt")

    assert without_checkpoint(words) == ["--config", "a b.yaml", "--model.gamma=0.9"]
    assert said.endswith("-m app test --config 'a b.yaml' --model.gamma=0.9 --trust my_env --ckpt_path '$it.ckpt'")


def test_the_interpreter_is_named_in_full_unless_python_means_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Path(python()).name == Path(sys.executable).name and "/" in python()

    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert python() == "python"
