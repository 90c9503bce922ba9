"""Make the missing runs of the scoreboard: `python -m tests.scoreboard [CONFIG ...] [--jobs N] [--folder FOLDER]`."""

import argparse
import fcntl
import json
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import yaml

from app.child_processes import exits_with_children
from tests.scoreboard.records import (
    PAGE,
    RECORDS,
    REFERENCES,
    Record,
    Task,
    missing_seeds,
    page,
    read_records,
    read_tasks,
    write_records,
)
from tests.support.training_runs import fit_and_test


def machine(accelerator: str) -> str:
    """Return the device of a run with an accelerator, the cores of the machine and the release of torch."""
    on_gpu = torch.cuda.is_available() and accelerator != "cpu"
    device = torch.cuda.get_device_name() if on_gpu else platform.machine()
    return f"{device}, {os.cpu_count()} CPU cores, torch {torch.__version__.partition('+')[0]}"


def run(task: Task, seed: int, folder: Path, extra: tuple[str, ...]) -> Record:
    """Train a task from a seed, test its last weights, and return the result.

    Raises:
        RuntimeError: if a verb fails, or the test has no such metric.
    """
    place = folder / f"{task.config.removesuffix('.yaml')}-{task.env.replace('/', '_')}-{seed}-{task.version}"
    words = ("--config", task.config, "--seed_everything", str(seed), *task.settings, *extra)
    run_folder, seconds = fit_and_test(place, *words, episodes=task.episodes)
    value = json.loads((run_folder / "metrics.json").read_text(encoding="utf-8")).get(task.metric)
    if value is None:
        raise RuntimeError(f"The test of {task.config} from seed {seed} has no finite {task.metric}.")
    trainer = yaml.safe_load((run_folder / "config.yaml").read_text(encoding="utf-8"))["trainer"]
    where = machine(trainer["accelerator"])
    return Record(task.config, task.env, seed, task.version, task.metric, value, round(seconds, 1), where)


def record(task: Task, seed: int, folder: Path, extra: tuple[str, ...]) -> bool:
    """Make one run, and add its result to the records and the page; return whether it succeeded."""
    try:
        result = run(task, seed, folder, extra)
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
        return False
    print(f"{task.config} {task.env} seed {seed}: {task.metric} {result.value:.4g}, {result.seconds} s", flush=True)
    with REFERENCES.open() as file:  # which locks it for threads and for other processes with this command
        fcntl.flock(file, fcntl.LOCK_EX)
        write_records([*read_records(), result])
        PAGE.write_text(page(read_tasks(), read_records()), encoding="utf-8")
    return True


def main() -> None:
    """Make the missing runs of all tasks, or of those of some configs, and write the page.

    Raises:
        SystemExit: with code 1 if a run fails, and with code 2 for invalid arguments.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.scoreboard", description="Train configs and compare.")
    parser.add_argument("configs", nargs="*", help="configs; all without")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time (1)")
    parser.add_argument("--folder", type=Path, default=Path("runs/scoreboard"), help="folder of the runs")
    parser.add_argument("--accelerator", default="auto", help="Trainer's accelerator (auto)")
    args = parser.parse_args()
    if unknown := {*args.configs} - {task.config for task in read_tasks()}:
        parser.error(f"no task has the config {', '.join(sorted(unknown))}: {REFERENCES.name} lists the tasks")
    if args.jobs < 1:
        parser.error(f"--jobs is {args.jobs}; it must be at least 1")
    tasks = [task for task in read_tasks() if not args.configs or task.config in args.configs]
    extra = ("--trainer.accelerator", args.accelerator) if args.accelerator != "auto" else ()
    known = read_records()
    missing = [(task, seed) for task in tasks for seed in missing_seeds(task, known)]
    with (
        exits_with_children(),
        ThreadPoolExecutor(args.jobs) as pool,
    ):  # of `map`, since an interruption then cancels the runs that wait
        succeeded = list(pool.map(lambda each: record(*each, args.folder.absolute(), extra), missing))
    tasks_and_records = read_tasks(), read_records()
    PAGE.write_text(page(*tasks_and_records), encoding="utf-8")
    print(f"{len(tasks_and_records[1])} runs in {RECORDS.name}; the page is {PAGE.name}")
    if not all(succeeded):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
