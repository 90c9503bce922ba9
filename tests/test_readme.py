"""What the README says is true: its files run as written, its tables name every config and every metric."""

import re
import sys
from pathlib import Path

import pytest
from gymnasium.utils.env_checker import check_env
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import app.cli  # noqa: F401  (here, so that Lightning's log handler keeps a stream that outlives one test)
from app.__main__ import main, shipped_configs

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
FILES = {text.split()[1]: text for text in re.findall(r"^```python\n(.+?)^```", README, re.MULTILINE | re.DOTALL)}
COMMANDS = re.findall(r"^python -m app (fit .*--trust my_\w+)$", README.replace("\\\n", ""), re.MULTILINE)
SETTINGS = {"data.num_envs": 8, "data.eval_episodes": 2, "trainer.max_steps": 2, "trainer.log_every_n_steps": 1}
SHORT = [f"--{key}={value}" for key, value in SETTINGS.items()] + ["--trainer.accelerator=cpu"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of a user who copied every file of the README."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LEYDEN_TRUST", "")
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    return tmp_path


def logged(folder: Path) -> set[str]:
    """Tags of the scalars of the only run in the folder."""
    (run,) = folder.glob("runs/*/version_0")
    return set(EventAccumulator(str(run)).Reload().Tags()["scalars"])


@pytest.mark.parametrize("command", COMMANDS, ids=[command.split()[-1] for command in COMMANDS])
def test_what_you_bring_trains(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["app", *command.split(), *SHORT])

    main()

    assert {"train/policy_loss", "eval/return_mean"} <= logged(folder)


def test_every_file_has_its_command() -> None:
    assert sorted(FILES) == sorted(f"{command.split()[-1]}.py" for command in COMMANDS)


def test_the_environment_keeps_gymnasiums_contract(folder: Path) -> None:
    scope: dict[str, type] = {}
    exec(FILES["my_env.py"], scope)

    check_env(scope["Corridor"](), skip_render_check=True)


def test_the_metrics_table_names_exactly_what_a_run_logs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = README.partition("## Metrics")[2].partition("\n## ")[0]
    first_cells = "".join(re.findall(r"^\| (`[^|]+)\|", table, re.MULTILINE))
    monkeypatch.setattr(sys, "argv", ["app", "fit", "--config", "ppo_fast.yaml", *SHORT])

    main()

    assert logged(folder) == set(re.findall(r"`([\w/]+)`", first_cells))


@pytest.mark.parametrize("config", shipped_configs())
def test_the_config_table_says_what_each_config_expects(config: str) -> None:
    lines = (Path(__file__).parents[1] / "configs" / config).read_text(encoding="utf-8").splitlines()
    expected = next(line.removeprefix("# Expect: ").rstrip(".") for line in lines if line.startswith("# Expect: "))

    (row,) = re.findall(rf"^\| `{config}` \|.*$", README, re.MULTILINE)

    assert row.endswith(f"| {expected} |"), "copy the config's Expect line into its row"
