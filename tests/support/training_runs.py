"""Whole runs through the real command line: train, then test the last weights."""

import sys
import time
from pathlib import Path

from app.child_processes import child_environ, run_child


def run_app(folder: Path, *words: str) -> None:
    """Run `python -m app` in a folder, where `VERB.log` gets its output.

    Raises:
        RuntimeError: if it fails, with the last lines of its output.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{words[0]}.log"
    with log.open("w", encoding="utf-8") as file:
        command = [sys.executable, "-m", "app", *words]
        done = run_child(command, child_environ(), cwd=folder, stdout=file, stderr=file)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{log.read_text(encoding='utf-8')[-2000:]}")


def fit_and_test(folder: Path, *words: str, episodes: int = 100) -> tuple[Path, float]:
    """Train in a folder and test the last weights, not the best; return the run's folder, and the seconds of training.

    `metrics.json` of the run's folder has the results of the test.

    Raises:
        RuntimeError: if training or the test fails.
    """
    before = time.monotonic()
    run_app(folder, "fit", *words)
    seconds = time.monotonic() - before
    last = max(folder.rglob("last.ckpt"), key=lambda path: path.stat().st_mtime)
    checkpoint = str(last.relative_to(folder))
    run_app(folder, "test", *words, "--data.eval_episodes", str(episodes), "--ckpt_path", checkpoint)
    return last.parents[1], seconds
