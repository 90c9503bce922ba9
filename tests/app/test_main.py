import io
import os
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from app.__main__ import announce, parse_trust_flags
from app.cli.config_args import find_config, resolve_config_args
from app.verbs import VERBS
from tests.app.conftest import Run

ROOT = Path(__file__).resolve().parents[2]
SHORT = ("--data.total_env_steps", "2048", "--data.eval_episodes", "2", "--trainer.accelerator", "cpu")


def python(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *words], cwd=cwd, env=environ, capture_output=True, text=True, timeout=60)


def test_without_a_verb_the_verbs_and_one_example_are_shown(run: Run) -> None:
    outcome = run()

    assert outcome.code == 2
    assert all(verb in outcome.err for verb in VERBS)
    assert "Example: python -m app fit --config" in outcome.err


def test_a_wrong_verb_names_the_nearest(run: Run) -> None:
    outcome = run("fti")

    assert (outcome.code, "did you mean `fit`?" in outcome.err) == (2, True)


def test_a_missing_config_names_the_nearest_or_lists_the_shipped_ones(run: Run) -> None:
    outcome = run("fit", "--config", "smalll.yaml")

    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith("There is no config `smalll.yaml`")
    assert "did you mean `small.yaml`?" in outcome.err


def test_a_missing_config_names_the_nearest_in_its_own_folder(run: Run, folder: Path) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "snake_large.yml").touch()

    outcome = run("fit", "--config", "mine/snake_lage.yml")

    assert (outcome.code, "did you mean `mine/snake_large.yml`?" in outcome.err) == (2, True)


@pytest.mark.parametrize("name", ["ppo_fast.yaml", "ppo_fasst.yaml"])
def test_a_missing_config_in_another_folder_names_the_shipped_one(run: Run, folder: Path, name: str) -> None:
    outcome = run("fit", "--config", str(folder / "config" / name))

    said = f"There is no config `{folder}/config/{name}`: did you mean `ppo_fast.yaml`?\n"
    assert (outcome.code, outcome.err) == (2, said)


def test_a_bare_config_name_means_the_working_directory_first_then_the_shipped_configs(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = folder / "shipped"
    shipped.mkdir()
    (shipped / "small.yaml").touch()
    (shipped / "other.yaml").touch()
    monkeypatch.setattr("app.cli.config_args.configs_folder", lambda: shipped)

    assert find_config("small.yaml") == "small.yaml"
    assert find_config("other.yaml") == str(shipped / "other.yaml")


def test_every_way_to_write_a_config_is_resolved(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.cli.config_args.find_config", lambda name: f"found/{name}")

    assert resolve_config_args(["fit", "-c", "a", "--config", "b", "--config=c", "--model.config", "d"]) == [
        "fit", "-c", "found/a", "--config", "found/b", "--config=found/c", "--model.config", "d",
    ]  # fmt: skip


def test_a_config_from_the_internet_is_refused(run: Run) -> None:
    assert "is a URL" in run("fit", "--config", "https://example.org/ppo.yaml").err


def test_trust_may_stand_anywhere_and_leaves_the_command_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["app", "fit", "--trust", "mine", "--model.a", "1", "--trust=yours.envs"])

    parse_trust_flags()

    assert sys.argv == ["app", "fit", "--model.a", "1"]
    assert os.environ["LEYDEN_TRUST"] == "tests,mine,yours.envs"


@pytest.mark.parametrize("name", ["os", "subprocess", "builtins", "jsonargparse", "my_module.py/", ""])
def test_trust_is_for_modules_of_the_user_only(run: Run, name: str) -> None:
    assert run("fit", "--trust", name).code == 2


def test_a_folder_that_shadows_a_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "__init__.py").touch()

    outcome = python("-m", "app", "fit", cwd=tmp_path)

    assert outcome.returncode == 2
    assert str(tmp_path) in outcome.stderr and str(ROOT) in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_nothing_heavy_is_imported_before_a_verb_is_chosen(tmp_path: Path) -> None:
    outcome = python("-c", "import sys, app.__main__; print({'torch', 'lightning'} & set(sys.modules))", cwd=tmp_path)

    assert outcome.stdout.strip() == "set()"


@pytest.mark.parametrize("verb", ["fit", "test", "validate"])
def test_a_terminal_of_ascii_characters_is_shown_question_marks_and_the_run_ends_well(
    run: Run, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict") for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)

    outcome = run(verb, "--config", "ppo_cartpole.yaml", *SHORT)

    out.flush()
    shown = cast(io.BytesIO, out.buffer).getvalue().decode("ascii")
    assert outcome.code == 0 and (verb == "validate" or " ? " in shown)


def test_a_test_prints_its_table_before_it_writes_the_file(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("callbacks.run_control.run_summary.atomic_write", lambda path: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        run("test", "--config", "ppo_cartpole.yaml", *SHORT)

    assert "95 % interval" in capsys.readouterr().out


def test_help_names_the_classes_to_choose_from_before_torch_is_imported(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['torch'] = None; from app.__main__ import main; sys.argv[1:] = ['fit', '-h']; main()"
    )

    outcome = python("-c", script, cwd=tmp_path)

    assert "algorithms           ActiveDynamics, DQN, PPO" in outcome.stdout
    assert outcome.returncode == 1 and "import of torch" in outcome.stderr


REFUSED = """
import sys
from app.__main__ import main
sys.argv = ["app", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print(end.code, "torch" in sys.modules)
"""


@pytest.mark.parametrize("words", [("fti",), ("fit", "--config", "none.yaml"), ("fit", "--config", "broken.yaml")])
def test_a_wrong_verb_config_name_or_yaml_is_refused_before_torch_is_imported(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "broken.yaml").write_text("model: [1")

    outcome = python("-c", REFUSED, *words, cwd=tmp_path)

    assert outcome.stdout.strip() == "2 False"
    assert outcome.stderr.count("\n") == 1 and "loading" not in outcome.stderr


def test_a_verb_says_what_starts_before_torch_is_imported(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from app.__main__ import announce;"
        "announce('fit', [Path('configs/a.yaml'), Path('b.yaml')]); announce('plot', []);"
        "sys.modules['torch'] = None; announce('test', [])"
    )

    outcome = python("-c", script, cwd=tmp_path)

    assert outcome.stderr == "fit a.yaml b.yaml: loading torch ...\n", outcome.stderr


def test_ranks_of_a_run_announce_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.delitem(sys.modules, "torch")

    announce("fit", [])

    assert capsys.readouterr().err == ""
