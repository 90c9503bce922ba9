"""`python -m app compare`: settings times seeds, side by side: steps to a threshold, final values, curves."""

import argparse
import csv
import itertools
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from torch.utils.tensorboard import SummaryWriter

from app.__main__ import find_config, require_config
from app.chart import chart
from app.children import child_environ
from app.comparison import Band, Result, band, judged, table
from app.curves import Curves
from app.errors import PlainParser, nearest, refuse

FINISHED = "finished.json"
"""Says in a run's folder which command line it finished: the same comparison, started again, goes on from there."""

REFUSED = 2
"""The exit code of a run that bad input ended: its sentence is all there is to keep."""

OUTSIDE_BRACKETS = re.compile(r",(?![^\[{(]*[\]})])")


class Entry(NamedTuple):
    """One run: its setting, its seed, where it goes, and the words after `fit`."""

    setting: str
    seed: int
    folder: Path
    words: list[str]


def main() -> None:
    """Run what is missing, then show the comparison and write it beside the runs."""
    options = parsed(sys.argv[2:])
    found, above = list(entries(options)), (options.folder, *options.folder.parents)
    missing = [folder for folder in above if not folder.exists()]
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    with ThreadPoolExecutor(options.jobs) as pool:
        failures = [failure for failure in pool.map(lambda entry: finish(entry, threads), found) if failure]
    if failures:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        refuse(failures[0])
    results = []
    for setting, group in itertools.groupby(found, key=lambda entry: entry.setting):
        curves = [curve_of(entry.folder, options.metric) for entry in group]
        results.append(judged(setting, curves, options.threshold, options.mode))
    bands = {result.name: band(result.curves) for result in results}
    write(options.folder, options.metric, results, bands, options.threshold)
    print(table(results, options.metric, options.threshold))
    print(f"Curves: {options.folder}/curves.csv, curves.png; tensorboard --logdir {options.folder}/compared")
    print(json.dumps({result.name: summary(result) for result in results}))


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """The options of the verb, checked."""
    parser = PlainParser(prog="python -m app compare", description=__doc__, allow_abbrev=False)
    parser.add_argument("-c", "--config", action="append", required=True, help="a config to compare; repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=A,B,C", help=(
        "compare these values of a setting; an empty value leaves it to the config; repeatable, all combinations"
    ))  # fmt: skip
    parser.add_argument("--with", action="append", default=[], dest="same", metavar="KEY=VALUE", help=(
        "a setting that is the same in all runs; repeatable"
    ))  # fmt: skip
    parser.add_argument("--seeds", type=int, default=5, help="runs of each setting, with seeds 1, 2, ...")
    parser.add_argument("--metric", required=True, help="the tag to judge by, such as eval/return_mean")
    parser.add_argument("--threshold", type=float, required=True, help="the value to reach")
    parser.add_argument("--mode", choices=("max", "min"), default="max", help="whether more or less is better")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--folder", type=Path, default=Path("runs/compare"), help="where runs and results go")
    options, unknown = parser.parse_known_args(words)
    if unknown:
        refuse(
            f"{unknown[0]} is no option of compare: a setting of all runs follows `--with`, for example"
            " --with data.total_env_steps=500, and one to compare `--set`."
        )
    for name in ("seeds", "jobs"):
        if getattr(options, name) < 1:
            refuse(f"--{name} is {getattr(options, name)}; it must be at least 1.")
    for option, settings, form in (("--set", options.set, "KEY=A,B,C"), ("--with", options.same, "KEY=VALUE")):
        for setting in settings:
            if "=" not in setting.strip("="):
                refuse(f"{option} {setting} is no setting: write {form}, for example {option} model.gamma=0.9")
    return options


def entries(options: argparse.Namespace) -> Iterator[Entry]:
    """All runs, those of a setting one after the other."""
    varied = [(key, OUTSIDE_BRACKETS.split(values)) for key, _, values in (item.partition("=") for item in options.set)]
    for config in options.config:
        path = Path(require_config(find_config(config)))
        for values in itertools.product(*(values for _, values in varied)):
            chosen = [(key, value) for (key, _), value in zip(varied, values, strict=True)]
            name = " ".join([path.stem, *(label(key, value) for key, value in chosen)])
            settings = [f"--{setting}" for setting in options.same]
            settings += [f"--{key}={value}" for key, value in chosen if value]
            for seed in range(1, options.seeds + 1):
                yield entry(name, seed, options.folder, ["--config", str(path.absolute()), *settings])


def label(key: str, value: str) -> str:
    """A setting for a name: the last words of key and value."""
    short = value if re.fullmatch(r"-?[\d.]+(e-?\d+)?", value) else value.rpartition(".")[2]
    return f"{key.rpartition('.')[2]}={short or 'config'}"


def entry(setting: str, seed: int, folder: Path, words: list[str]) -> Entry:
    """A run in `folder/setting/seed_N`."""
    name = plain(setting)[:64]
    logger = {"save_dir": str(folder.absolute()), "name": name, "version": f"seed_{seed}"}
    words = [*words, f"--seed_everything={seed}"]
    words += [f"--trainer.logger.init_args.{key}={value}" for key, value in logger.items()]
    return Entry(setting, seed, folder / name / f"seed_{seed}", words)


def plain(name: str) -> str:
    """A name for a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)


def finish(entry: Entry, threads: int) -> str | None:
    """Run it, unless it was finished before; a sentence if it fails."""
    mark, command = entry.folder / FINISHED, json.dumps(entry.words)
    if mark.is_file() and mark.read_text(encoding="utf-8") == command:
        return None
    for stale in entry.folder.glob("events.out.tfevents.*"):
        stale.unlink()
    entry.folder.mkdir(parents=True, exist_ok=True)
    environ = {"OMP_NUM_THREADS": str(threads)} | child_environ()
    log = entry.folder / "log.txt"
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(
            [sys.executable, "-m", "app", "fit", *entry.words], env=environ, stdout=file, stderr=subprocess.STDOUT
        )
    if done.returncode:
        said = log.read_text(encoding="utf-8").strip().splitlines() or ["nothing"]
        if done.returncode == REFUSED:
            log.unlink()
            for folder in (entry.folder, entry.folder.parent):
                with suppress(OSError):
                    folder.rmdir()
            return f"{entry.setting}, seed {entry.seed}: {said[-1]}"
        return (
            f"{entry.setting}, seed {entry.seed}, ended with code {done.returncode} and said: {said[-1]} (all: {log})"
        )
    mark.write_text(command, encoding="utf-8")
    print(f"{entry.setting}, seed {entry.seed}: done", flush=True)
    return None


def curve_of(folder: Path, metric: str) -> list[tuple[int, float]]:
    """The metric's points in a finished run."""
    curves = Curves(folder)
    curves.refresh()
    if metric not in curves.by_tag:
        refuse(f"{folder} has logged no {metric}: {nearest(metric, curves.by_tag)}")
    return curves.by_tag[metric].points


def write(folder: Path, metric: str, results: list[Result], bands: dict[str, Band], threshold: float) -> None:
    """The points as CSV, the curves as a picture and for TensorBoard."""
    with (folder / "curves.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("setting", "seed", "env_steps", metric))
        for result in results:
            for seed, points in enumerate(result.curves, start=1):
                rows.writerows((result.name, seed, step, value) for step, value in points)
    chart(bands, metric, threshold).save(folder / "curves.png")
    for name, course in bands.items():
        with SummaryWriter(str(folder / "compared" / plain(name))) as board:
            for step, estimate in zip(course.steps, course.estimates, strict=True):
                board.add_scalar(metric, estimate.value, step)


def summary(result: Result) -> dict[str, object]:
    """A setting's numbers for a program; null for never."""
    steps = [value if math.isfinite(value) else None for value in result.steps]
    return {"env_steps": steps, "final": list(result.final), "seeds": len(result.curves)}
