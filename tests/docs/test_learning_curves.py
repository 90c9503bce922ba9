"""The learning curves of the documentation are committed data, from which the page's commands draw its figures."""

import shlex
import sys
from pathlib import Path

import pytest
from PIL import Image

from app.__main__ import main
from app.cli.config_files import shipped_configs
from app.plot.main import read_runs
from tests.docs.pages import ROOT, text

CURVES = ROOT / "docs" / "experiments" / "curves"
PAGE = text(ROOT / "docs" / "experiments" / "learning_curves.md")
COMMANDS = [
    shlex.split(line) for line in PAGE.replace("\\\n", "").splitlines() if line.startswith("python -m app plot")
]
DRAWN = [command for command in COMMANDS if command[-1].endswith(".png")]


@pytest.mark.parametrize("path", sorted(CURVES.glob("*.csv")), ids=lambda path: path.stem)
def test_data_are_small_and_of_the_config_of_their_name(path: Path) -> None:
    runs = list(read_runs(path))

    assert {f"{run.name}.yaml" for run in runs} == {f"{path.stem}.yaml"} <= set(shipped_configs())
    assert all(points for run in runs for points in run.curves.values())
    assert path.stat().st_size < 10_000


@pytest.mark.parametrize("command", DRAWN, ids=lambda command: Path(command[-1]).stem)
def test_commands_of_the_page_draw_its_figures(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    drawn = tmp_path / "figure.png"
    monkeypatch.setattr(sys, "argv", ["app", *command[3:-1], str(drawn)])
    main()

    assert Image.open(drawn).size == Image.open(ROOT / command[-1]).size
    assert f"(curves/{Path(command[-1]).name})" in PAGE
    assert all((ROOT / word).is_file() for word in command if word.endswith(".csv"))


def test_every_file_of_curves_is_drawn() -> None:
    named = {Path(word).name for command in COMMANDS for word in command if word.startswith("docs/")}

    assert named == {path.name for path in CURVES.iterdir()}
