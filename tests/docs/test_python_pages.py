"""The pages on Python are true in the folder of a user, beside a `modules/` folder of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, listings, shortened

MINE = "A_NUMBER = 3\n"
USES_BOTH = "from modules.my_network import A_NUMBER\nfrom modules import PPO\nassert A_NUMBER and PPO is leyden.PPO\n"


def python(folder: Path, *words: str) -> str:
    """Run a new interpreter as a user does, in a folder, and return what it printed."""
    environ = os.environ | {"PYTHONPATH": str(ROOT), "PL_GLOBAL_SEED": "0"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environ, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a user who copied the notebook, with packages of their own that have the names of Leyden's."""
    folder = tmp_path
    (folder / "notebook.py").write_text(shortened(listings()["notebook.py"]))
    for package in ("modules", "app", "datamodules"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text("raise ImportError('this is not of Leyden')\n")
    (folder / "modules" / "my_network.py").write_text(MINE)
    return folder


def test_the_notebook_runs_beside_folders_of_the_same_names(folder: Path) -> None:
    with (folder / "notebook.py").open("a") as file:
        file.write(USES_BOTH)

    said = python(folder, "notebook.py")

    assert "Agent(PPO of" in said


def test_a_package_of_the_same_name_that_was_imported_before_is_named(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("")
    said = python(tmp_path, "-c", "import app\ntry: import leyden\nexcept ImportError as error: print(error)")

    assert said.startswith(f"`app` was imported from {tmp_path / 'app.py'} before leyden") and "rename yours" in said
    assert str(ROOT) in python(tmp_path, "-c", "import leyden, app; print(app.__file__)")
