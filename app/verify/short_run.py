"""ShortRun: a run of a few iterations of a config in a process of its own."""

import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from subprocess import PIPE, TimeoutExpired
from typing import Any, NamedTuple

import yaml

from app.child_processes import child_environ, run_child
from app.cli.import_policy import TRUST_VARIABLE
from app.cli.main import main

TIMEOUT = 900.0
"""Seconds after which a run is ended."""

REPORT = "app.verify.weights_report.WeightsReport"


class Outcome(NamedTuple):
    """Result of a run.

    folder: of the run.   report: what `WeightsReport` wrote; None if the run failed.   error: its last line.
    """

    folder: Path
    report: dict[str, Any] | None
    error: str

    @property
    def checkpoint(self) -> Path:
        """Return the last checkpoint."""
        return self.folder / "checkpoints" / "last.ckpt"


def short_run(folder: Path, words: Sequence[str], iterations: int, *more: str) -> Outcome:
    """Train a number of iterations of a config into a new folder.

    Args:
        folder: folder of the run.
        words: words of the command line that select the config and override its settings.
        more: further words, which win.
    """
    report = folder / "weights.json"
    folder.mkdir(parents=True)
    callback = json.dumps({"class_path": REPORT, "init_args": {"path": str(report)}})
    own = [f"--trainer.default_root_dir={folder}", "--trainer.logger=false", f"--trainer.max_steps={iterations}"]
    words = ["--trainer.accelerator=cpu", *words, *own, f"--trainer.callbacks+={callback}", *more]
    code, out, err = program("fit", words)
    if code == 0 and report.is_file():
        return Outcome(folder, json.loads(report.read_text()), "")
    return Outcome(folder, None, last_line(err) or last_line(out) or f"exit code {code}")


def settings(words: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a config with its overrides.

    Raises:
        SystemExit: with one sentence and code 2 if the command line is invalid.
    """
    argv, printed = sys.argv, io.StringIO()
    sys.argv = [argv[0], "fit", *words, "--print_config"]
    try:
        with redirect_stdout(printed):
            main()
    except SystemExit as end:
        if end.code:
            raise
    finally:
        sys.argv = argv
    found: dict[str, Any] = yaml.safe_load(printed.getvalue())
    return found


def program(verb: str, words: Sequence[str]) -> tuple[int, str, str]:
    """Run a verb and return its exit code, its output and its messages."""
    environ = child_environ()
    environ[TRUST_VARIABLE] = ",".join(filter(None, [environ.get(TRUST_VARIABLE, ""), REPORT.rpartition(".")[0]]))
    try:
        command, pipes = [sys.executable, "-P", "-m", "app", verb, *words], {"stdout": PIPE, "stderr": PIPE}
        done = run_child(command, environ, text=True, timeout=TIMEOUT, **pipes)
    except TimeoutExpired:
        return 1, "", f"It took longer than {TIMEOUT:.0f} seconds."
    return done.returncode, done.stdout, done.stderr


def last_line(said: str) -> str:
    """Return the last line of an output that is not empty."""
    return next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "")
