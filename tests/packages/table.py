"""Write the table of tested packages: `python -m tests.packages.table [NAME ...] [--venvs FOLDER]`.

Each set of packages gets a virtual environment that adds its pins to the interpreter's own packages. In it every
environment trains for two iterations, is evaluated and saved (`fit`), then loaded and played (`predict`). With names of
sets, only their rows are tried, and printed instead of written.
"""

import argparse
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable
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


def tried(rows: Iterable[Row], folder: Path) -> list[tuple[str, ...]]:
    """Return the rows of the table: packages, environment, algorithm and outcome."""
    table = []
    for row in rows:
        try:
            happened = outcome(row, make_venv(row.packages, folder))
        except subprocess.CalledProcessError as error:
            happened = f"not installed: {(error.stderr or '').strip().splitlines()[-1:]}"
        algorithm = row.options.split()[1]
        table.append((", ".join(PINS[row.packages]) or row.packages, f"`{row.env}`", algorithm, happened))
        print(" | ".join(table[-1]), flush=True)
    return table


def page(table: Iterable[tuple[str, ...]]) -> str:
    """Return the page with the table."""
    head = "| packages | `data.env` | algorithm | outcome |\n|---|---|---|---|\n"
    rows = "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in table)
    text = (
        "The environments of packages that people use, tried with two iterations of training each. An environment of"
        " another package is named `module:Id`, and its package trusted with `--trust module`; then, and for what"
        " `--check` says about an environment of yours, see [environments](environments.md).\n\n"
        "Every set of packages has a virtual environment of its own, since their pins clash.\n\n"
    )
    return f"{START}\n\n# Tested packages\n\n{text}{head}{rows}\n"


def main() -> None:
    """Try every row, and write the page; or only some sets of packages, and print their rows."""
    parser = argparse.ArgumentParser(description="Train on the environments of real packages.")
    parser.add_argument("names", nargs="*", choices=[[], *PINS], help="sets of packages; all without")
    parser.add_argument("--venvs", type=Path, default=Path(tempfile.gettempdir()) / "leyden_packages")
    args = parser.parse_args()
    rows = [row for row in ROWS if row.packages in (args.names or PINS)]
    table = tried(rows, args.venvs)
    if not args.names:
        PAGE.write_text(page(table), encoding="utf-8")


if __name__ == "__main__":
    main()
