"""Write the table of tested packages: `python -m tests.packages.table [NAME ...] [--venvs FOLDER]`.

Each set of packages gets a virtual environment that adds its pins to the interpreter's own packages. In it every
environment trains for two iterations, is evaluated and saved (`fit`), then loaded and played (`predict`). With names of
sets, only their rows are tried, and replaced in the page.
"""

import argparse
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.packages.rows import PINS, ROWS, Row

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "packages.md"
SMALL = (
    "--data.num_envs 4 --data.total_env_steps 128 --data.eval_episodes 2 --data.eval_max_steps 50"
    " --trainer.max_steps 2 --trainer.val_check_interval 1 --trainer.accelerator cpu"
)
SECONDS = 600
"""Limit of one row."""

START = "<!-- Written by `python -m tests.packages.table`. -->"
DONE = "trains, is evaluated, saved, loaded and played"


def make_venv(name: str, folder: Path) -> Path:
    """Create the virtual environment of a set of packages, unless it exists; return its interpreter.

    Raises:
        CalledProcessError: if a package cannot be installed, with pip's output.
    """
    home, done = folder / name, folder / name / "installed"
    python = home / "bin" / "python"
    if not done.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
        ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip()
        (Path(site) / "zz_leyden.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINS[name]]
        if PINS[name]:
            subprocess.run(pip, check=True, capture_output=True, text=True)
        done.touch()
    return python


def outcome(row: Row, python: Path) -> str:
    """Return what happens when an environment is trained on, then loaded and played."""
    environ = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "SDL_VIDEODRIVER": "dummy"}
    words = shlex.split(f"--data.env {row.env} {row.options} {SMALL}")
    command = [str(python), "-m", "tests.packages.try_env", *words]
    with tempfile.TemporaryDirectory() as folder:
        try:
            ended = subprocess.run(command, cwd=folder, env=environ, timeout=SECONDS, capture_output=True, text=True)
        except subprocess.TimeoutExpired:
            return f"**fails**: more than {SECONDS} s"
    if ended.returncode == 0:
        return DONE
    lines = [line.strip() for line in ended.stderr.splitlines() if line.strip()]
    last = "".join(each for each in lines[-1] if each.isprintable()) if lines else ""
    return f"refused: {last}" if ended.returncode == 2 else f"**fails**: {last:.300}"


def tried(row: Row, folder: Path) -> str:
    """Return the line of the table of an environment."""
    try:
        happened = outcome(row, make_venv(row.packages, folder))
    except subprocess.CalledProcessError as error:
        happened = f"not installed: {(error.stderr or '').strip().splitlines()[-1:]}"
    packages = ", ".join(PINS[row.packages]) or row.packages
    cells = (packages, f"`{row.env}`", row.options.split()[1], happened)
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
        " clash, tries all rows and writes this page; with names of sets only theirs. An outcome is that the"
        f" environment {DONE}, or the message with which it is refused.\n\n"
    )
    head = "| packages | `data.env` | algorithm | outcome |\n|---|---|---|---|\n"
    return f"{START}\n\n# Tested packages\n\n{text}{head}{rows}\n"


def existing() -> list[str]:
    """Return the lines of the table of the existing page."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    return [line for line in text.splitlines() if line.startswith("| ") and " | `" in line and "`data.env`" not in line]


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
    with ThreadPoolExecutor(args.jobs) as pool:
        for line in pool.map(lambda row: tried(row, args.venvs), rows):
            PAGE.write_text(page([line]), encoding="utf-8")


if __name__ == "__main__":
    main()
