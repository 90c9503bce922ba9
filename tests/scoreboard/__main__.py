"""Make the missing runs of the scoreboard: `python -m tests.scoreboard [CONFIG ...] [--jobs N] [--folder FOLDER]`."""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import torch

from tests.scoreboard.records import (
    PAGE,
    RECORDS,
    ROOT,
    Record,
    Task,
    page,
    read_records,
    read_tasks,
    records_of,
    write_records,
)

LOCK = Lock()


def machine(words: tuple[str, ...]) -> str:
    """Return the device of a run, the cores of the machine and the release of torch."""
    on_gpu = torch.cuda.is_available() and "cpu" not in words
    device = torch.cuda.get_device_name() if on_gpu else platform.machine()
    return f"{device}, {os.cpu_count()} CPU cores, torch {torch.__version__.partition('+')[0]}"


def app(*words: str, folder: Path) -> None:
    """Run `python -m app` in a folder; its output goes to a file there.

    Raises:
        RuntimeError: if it fails, with the last lines of its output.
    """
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    with (folder / f"{words[0]}.log").open("w", encoding="utf-8") as log:
        done = subprocess.run([sys.executable, "-m", "app", *words], cwd=folder, env=environ, stdout=log, stderr=log)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{(folder / f'{words[0]}.log').read_text()[-2000:]}")


def run(task: Task, seed: int, folder: Path, extra: tuple[str, ...]) -> Record:
    """Train a task from a seed, test its last weights, and return the result."""
    place = folder / f"{task.config.removesuffix('.yaml')}-{task.env.replace('/', '_')}-{seed}-{task.version}"
    place.mkdir(parents=True, exist_ok=True)
    words = ("--config", task.config, "--seed_everything", str(seed), *task.settings, *extra)
    before = time.monotonic()
    app("fit", *words, folder=place)
    seconds = time.monotonic() - before
    last = max(place.rglob("last.ckpt"), key=lambda path: path.stat().st_mtime)
    test = ("--data.eval_episodes", str(task.episodes), "--ckpt_path", str(last.relative_to(place)))
    app("test", *words, *test, folder=place)
    value = json.loads((last.parents[1] / "metrics.json").read_text(encoding="utf-8"))[task.metric]
    return Record(task.config, task.env, seed, task.version, task.metric, value, round(seconds, 1), machine(extra))


def record(task: Task, seed: int, folder: Path, extra: tuple[str, ...]) -> None:
    """Make one run, and add its result to the records and the page."""
    try:
        result = run(task, seed, folder, extra)
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
        return
    print(f"{task.config} {task.env} seed {seed}: {task.metric} {result.value:.4g}, {result.seconds} s", flush=True)
    with LOCK:
        write_records([*read_records(), result])
        PAGE.write_text(page(read_tasks(), read_records()), encoding="utf-8")


def main() -> None:
    """Make the missing runs of all tasks, or of those of some configs, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.scoreboard", description="Train configs and compare.")
    parser.add_argument("configs", nargs="*", help="configs; all without")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time (1)")
    parser.add_argument("--folder", type=Path, default=Path("runs/scoreboard"), help="folder of the runs")
    parser.add_argument("--accelerator", default="auto", help="Trainer's accelerator (auto)")
    args = parser.parse_args()
    tasks = [task for task in read_tasks() if not args.configs or task.config in args.configs]
    extra = ("--trainer.accelerator", args.accelerator) if args.accelerator != "auto" else ()
    known = read_records()
    with ThreadPoolExecutor(args.jobs) as pool:
        for task in tasks:
            made = {each.seed for each in records_of(task, known)}
            for seed in sorted({*range(1, task.seeds + 1)} - made):
                pool.submit(record, task, seed, args.folder.absolute(), extra)
    tasks_and_records = read_tasks(), read_records()
    PAGE.write_text(page(*tasks_and_records), encoding="utf-8")
    print(f"{len(tasks_and_records[1])} runs in {RECORDS.name}; the page is {PAGE.name}")


if __name__ == "__main__":
    main()
