"""Write the table of tested packages: `python -m tests.packages.table [NAME ...] [--venvs FOLDER]`.

Each set of packages gets a virtual environment that adds its pins to the interpreter's own packages. With names of
sets, only their rows are tried, and replaced in the page. See `try_env` for what is tried.
"""

import argparse
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from app.child_processes import exits_with_children, run_child
from tests.packages.rows import PINS, ROWS, TOOLS, Row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "packages.md"
START = "<!-- Written by `python -m tests.packages.table`. -->"
COLUMNS = ("trains", "plays", "exports", "verifies")
HEAD = f"| packages | `data.env` | algorithm | {' | '.join(COLUMNS)} |\n{'|---' * (3 + len(COLUMNS))}|\n"


def make_venv(name: str, folder: Path) -> Path:
    """Create the virtual environment of a set of packages, unless it exists; return its interpreter.

    Raises:
        CalledProcessError: if a package cannot be installed, with pip's output.
    """
    tools = make_env(folder / "tools", (*TOOLS, "-c", str(ROOT / "constraints.txt")), [])
    return make_env(folder / name, PINS[name], [purelib(tools)])


def make_env(home: Path, packages: tuple[str, ...], folders: list[str]) -> Path:
    """Create a virtual environment with packages, unless it exists; return its interpreter.

    Args:
        home: its folder.   packages: arguments of `pip install`.
        folders: folders of packages that it also uses, beside those of this interpreter.

    Raises:
        CalledProcessError: if a package cannot be installed, with pip's output.
    """
    python, done = home / "bin" / "python", home / "installed"
    if not done.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        path = "\n".join([*folders, sysconfig.get_path("purelib"), ""])
        (Path(purelib(python)) / "zz_leyden.pth").write_text(path)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages]
        if packages:
            subprocess.run(pip, check=True, capture_output=True, text=True)
        done.touch()
    return python


def purelib(python: Path) -> str:
    """Return the folder of an interpreter's packages."""
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()


def outcomes(row: Row, python: Path) -> list[str]:
    """Return the cells of an environment.

    Args:
        row: the environment.   python: interpreter with its packages.
    """
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [str(python), "-m", "tests.packages.try_env", str(ROWS.index(row))]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    ended = run_child(command, environ, text=True, **pipes)
    cells: list[str] = json.loads(ended.stdout) if ended.returncode == 0 else [f"**fails**: {ended.stderr[-300:]!r}"]
    return cells


def tried(row: Row, folder: Path) -> str:
    """Return the line of the table of an environment."""
    try:
        cells = outcomes(row, make_venv(row.packages, folder))
    except subprocess.CalledProcessError as error:
        cells = [f"not installed: {(error.stderr or '').strip().splitlines()[-1:]}"]
    packages = ", ".join(PINS[row.packages]) or row.packages
    cells = [packages, f"`{row.env}`", row.options.split()[1], *cells, *[""] * (len(COLUMNS) - len(cells))]
    line = f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    print(line, flush=True)
    return line


def key(line: str) -> tuple[str, str]:
    """Return the packages and the environment of a line."""
    packages, env = line.split(" | ")[:2]
    return packages.removeprefix("| ").partition("==")[0], env


def page(lines: Iterable[str]) -> str:
    """Return the page with the table, whose lines replace those of the existing page."""
    found = {key(line): line for line in (*existing(), *lines)}
    order = [(PINS[row.packages][:1] or (row.packages,), f"`{row.env}`") for row in ROWS]
    keys = [(first[0].partition("==")[0], env) for first, env in order]
    rows = "\n".join(found[each] for each in keys if each in found)
    text = (
        "Environments of packages that people use, tried on a CPU with two iterations of training each, with default"
        " networks. An environment of another package is named `module:Id`, or by its module for PettingZoo, and the"
        " package is trusted with `--trust module` (see [environments](environments.md)).\n\n"
        "`python -m tests.packages.table` makes a virtual environment for every set of packages, since their pins"
        " clash, tries all rows and writes this page; with names of sets only theirs. A cell is `yes`, or the message"
        " with which the environment is refused.\n\n"
        "| column | tried |\n|---|---|\n"
        "| trains | `fit` trains, evaluates and saves |\n"
        "| plays | `play` loads the checkpoint and writes a video of an episode of at most 50 steps |\n"
        "| exports | `export` writes ONNX that decides on 100 recorded observations as the agent does |\n"
        "| verifies | `verify --only contract determinism export`: no check fails; `cannot` names those that cannot be"
        " made, for the reason that `verify` prints, and `reports` a fault of the environment's own |\n\n"
    )
    return f"{START}\n\n# Tested packages\n\n{text}{HEAD}{rows}\n"


def existing() -> list[str]:
    """Return the lines of the table of the existing page."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    return text.partition(HEAD)[2].splitlines()


def main() -> None:
    """Try every row, or those of some sets of packages, and write the page."""
    parser = argparse.ArgumentParser(description="Train on the environments of real packages.")
    parser.add_argument("names", nargs="*", choices=[[], *PINS], help="sets of packages; all without")
    parser.add_argument("--venvs", type=Path, default=Path(tempfile.gettempdir()) / "leyden_packages")
    parser.add_argument("--jobs", type=int, default=1, help="rows tried at once (1)")
    args = parser.parse_args()
    rows = [row for row in ROWS if row.packages in (args.names or PINS)]
    for name in dict.fromkeys(row.packages for row in rows):
        with suppress(subprocess.CalledProcessError):  # its rows say so
            make_venv(name, args.venvs)
    with exits_with_children(), ThreadPoolExecutor(args.jobs) as pool:
        for line in pool.map(lambda row: tried(row, args.venvs), rows):
            PAGE.write_text(page([line]), encoding="utf-8")


if __name__ == "__main__":
    main()
