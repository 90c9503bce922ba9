"""`python -m app compare`: train every setting with every seed; compare steps to a threshold, final values, curves."""

import argparse
import csv
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any

import yaml
from torch.utils.tensorboard import SummaryWriter

from app.child_processes import exits_with_children
from app.class_paths import canonical_path
from app.cli.config_args import find_config, require_config
from app.cli.error_messages import PlainParser, exit_with_error
from app.compare.population import train_populations
from app.compare.runs import Entry, RefusedRun, environ_of, finished, fit, seeded
from app.compare.tested_runs import METRICS, run_test, tested_curve, trading_table
from app.metrics import known_tags
from app.monitor.curves import Curves
from app.plot.learning_curves import draw_learning_curves
from app.plot.statistics import ConfidenceBand, Points, Result, confidence_band, paired_table, summarize_setting, table
from callbacks.figures.plotting import encode, style
from datamodules.core.errors import ConfigurationError, nearest
from datamodules.core.files.printable import counted, printable, printable_line
from datamodules.core.files.run_checkpoints import checkpoint_in
from datamodules.core.signals import SignalExit


def main() -> None:
    """Run missing runs, then print the comparison and write it beside the runs."""
    options = parsed(sys.argv[2:])
    found, above = list(entries(options)), (options.folder, *options.folder.parents)
    missing = [folder for folder in above if not folder.exists()]
    due = sum(finished(entry) is None for entry in found)
    print(
        f"{due} of {counted(len(found), 'run')} to do, {options.jobs} at a time, in"
        f" {printable_line(str(options.folder))}.",
        flush=True,
    )
    if hint := unknown_metric(options.metric):
        print(hint, flush=True)
    threads = max(1, (os.cpu_count() or 1) // options.jobs)
    try:
        with exits_with_children():
            failures = run_all(found, options, threads)
    except SignalExit:
        done = sum(finished(entry) is not None for entry in found)
        left = "the same command resumes those that have saved a checkpoint, and starts the others"
        print(f"Stopped: {done} of {counted(len(found), 'run')} done; {left}.", file=sys.stderr)
        raise
    if failures:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        exit_with_error(failures[0])
    results, tables = [], []
    for setting, group in itertools.groupby(found, key=lambda entry: entry.setting):
        runs = {entry.seed: finished(entry) or entry.folder for entry in group}
        try:
            curves = [points_of(run, options) for run in runs.values()]
        except ConfigurationError as error:
            exit_with_error(str(error))
        tables += [trading_table(setting, list(runs.values()))] if options.test else []
        results.append(summarize_setting(setting, curves, options.threshold, options.mode))
        for seed, points in zip(runs, curves, strict=True):
            print(printable_line(f"{setting}, seed {seed}: {last_value(points)}, {checkpoint_of(runs[seed])}"))
    bands = {result.name: course for result in results if (course := confidence_band(result.curves)).steps}
    write(options.folder, options.metric, results, bands, options.threshold)
    print(printable(table(results, options.metric, options.threshold)))
    if len(results) > 1:
        print(printable(paired_table(results, options.metric)))
    for each in filter(None, tables):
        print(printable(each))
    folder = printable_line(str(options.folder))
    print(f"Curves: {folder}/curves.csv, curves.png; tensorboard --logdir {folder}/compared")
    print(json.dumps({result.name: summary(result) for result in results}))


def run_all(found: Sequence[Entry], options: argparse.Namespace, threads: int) -> list[str]:
    """Train the missing runs, seeds of a population together, and test them if asked; return the error messages.

    If the first finished run lacks the metric, no others are trained, and after a refused one none of its setting. All
    finished runs are kept.
    """
    environ, has_metric, lacks_metric = environ_of(threads), Event(), Event()
    refused: set[str] = set()

    def finish_unless_wrong(entry: Entry) -> str:
        if lacks_metric.is_set() or entry.setting in refused:
            return ""
        try:
            said = finish(entry, environ, options.test)
        except RefusedRun as refusal:
            refused.add(entry.setting)
            return str(refusal)
        if not said and not has_metric.is_set():
            said = no_metric(entry, options)
            (lacks_metric if said else has_metric).set()
        return said

    if said := next((no_metric(entry, options) for entry in found if is_done(entry, options.test)), ""):
        return [said]
    if options.population != "off" and (
        failure := train_populations(found, options.population, options.seed_key, environ)
    ):
        return [failure]
    with ThreadPoolExecutor(options.jobs) as pool:
        return [said for said in pool.map(finish_unless_wrong, found) if said]


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the verb's options."""
    parser = PlainParser(prog="python -m app compare", description=__doc__, allow_abbrev=False)
    parser.add_argument("-c", "--config", action="append", required=True, help="a config to compare; repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=A,B,C", help=(
        "compare these values of a setting; an empty value leaves it to the config; repeatable, all combinations"
    ))  # fmt: skip
    parser.add_argument("--with", action="append", default=[], dest="same", metavar="KEY=VALUE", help=(
        "a setting that is the same in all runs; repeatable"
    ))  # fmt: skip
    parser.add_argument("--seeds", type=int, default=5, help="runs of each setting, with seeds 1, 2, ... (5)")
    parser.add_argument("--seed-key", action="append", default=[], metavar="KEY", help=(
        "a setting that gets the run's seed, for example data.synthetic.seed; repeatable"
    ))  # fmt: skip
    parser.add_argument("--test", action="store_true", help=(
        "test the best checkpoint of every run, and compare the results of these tests"
    ))  # fmt: skip
    parser.add_argument("--metric", default="eval/return_mean", help="tag of the metric (eval/return_mean)")
    parser.add_argument("--threshold", type=float, help="the value to reach (none)")
    parser.add_argument("--at", type=int, help="compare the values after so many environment steps (at the end)")
    parser.add_argument("--mode", choices=("max", "min"), default="max", help="whether more or less is better (max)")
    parser.add_argument("--population", choices=("auto", "on", "off"), default="auto", help=(
        "whether the seeds of PPO in an on-device environment are trained in one program; auto: on a GPU (auto)"
    ))  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time (1)")
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/compare"), help="folder of runs and results (runs/compare)"
    )
    return parser


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Parse and check the options of the verb."""
    options, unknown = make_parser().parse_known_args(words)
    if unknown:
        exit_with_error(
            f"{unknown[0]} is not an option of compare: a setting of all runs follows `--with`, for example"
            " --with data.total_env_steps=500, and one to compare `--set`."
        )
    for name in ("seeds", "jobs"):
        if getattr(options, name) < 1:
            exit_with_error(f"--{name} is {getattr(options, name)}; it must be at least 1.")
    if options.test and options.at is not None:
        exit_with_error("--at is the end of a curve, but --test compares tests of the best checkpoints: leave one out.")
    for option, settings, form in (("--set", options.set, "KEY=A,B,C"), ("--with", options.same, "KEY=VALUE")):
        for setting in settings:
            if "=" not in setting.strip("="):
                exit_with_error(
                    f"{option} {setting} is not a setting: write {form}, for example {option} model.gamma=0.9"
                )
    return options


def unknown_metric(metric: str) -> str:
    """Return a hint if a tag is none of the known ones but close to one; empty otherwise."""
    close = [] if metric in known_tags() else get_close_matches(metric, known_tags(), n=1, cutoff=0.8)
    return f"{metric} is no known tag: did you mean `{close[0]}`? The first run tells." if close else ""


def entries(options: argparse.Namespace) -> Iterator[Entry]:
    """Yield all runs, grouped by setting; a hash of its arguments names the folder of each."""
    varied = [(key, split_values(values)) for key, _, values in (item.partition("=") for item in options.set)]
    found = []
    for config in options.config:
        path = Path(require_config(find_config(config)))
        for values in itertools.product(*(values for _, values in varied)):
            chosen = [(key, value) for (key, _), value in zip(varied, values, strict=True)]
            same = (setting.partition("=") for setting in options.same)
            settings = [f"--{key}={canonical_path(value)}" for key, _, value in same]
            settings += [f"--{key}={canonical_path(value)}" for key, value in chosen if value]
            hashed = settings + [f"--{key}=seed" for key in options.seed_key]
            digest = sha256(json.dumps(hashed).encode() + b"\0" + path.read_bytes()).hexdigest()[:10]
            short = " ".join([path.stem, *(label(key, value) for key, value in chosen)])
            long = " ".join([path.stem, *(f"{key}={value or 'config'}" for key, value in chosen)])
            found.append((short, long, digest, ["--config", str(path.absolute()), *settings]))
    digests: dict[str, set[str]] = {}
    for short, long, digest, _ in found:
        digests.setdefault(short, set()).add(digest)
        digests.setdefault(long, set()).add(digest)
    for short, long, digest, words in {entry[2]: entry for entry in found}.values():
        name = next((name for name in (short, long) if len(digests[name]) == 1), f"{long} #{digest}")
        for seed in range(1, options.seeds + 1):
            own = [*words, *(f"--{key}={seed}" for key in options.seed_key)]
            yield Entry(name, seed, options.folder / f"{plain(short)[:48]}-{digest}" / f"seed_{seed}", own)


def split_values(values: str) -> list[str]:
    """Split the values of a setting at the commas outside of brackets and quotes."""
    parts, depth, quote = [""], 0, ""
    for character in values:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        depth += not quote and (character in "[{(") - (character in "]})")
        if character == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def label(key: str, value: str) -> str:
    """Return a short name of a setting: the last part of its key, and its value with short names of classes."""
    with suppress(yaml.YAMLError, TypeError):  # no YAML, or dates, which JSON lacks: the text itself
        if value.startswith(("{", "[")):
            return f"{key.rpartition('.')[2]}={short_value(yaml.safe_load(value))}"
    plain_class = re.fullmatch(r"[A-Za-z_][\w.]*", value)
    return f"{key.rpartition('.')[2]}={(value.rpartition('.')[2] if plain_class else value) or 'config'}"


def short_value(value: Any) -> str:
    """Return a parsed value as text; a class with its arguments as a call, without its package."""
    if isinstance(value, list):
        return f"[{', '.join(map(short_value, value))}]"
    if isinstance(value, dict) and isinstance(value.get("class_path"), str):
        arguments = value.get("init_args") or {}
        if isinstance(arguments, dict):
            given = ", ".join(f"{name}={short_value(each)}" for name, each in arguments.items())
            return f"{value['class_path'].rpartition('.')[2]}({given})"
    return json.dumps(value) if isinstance(value, dict | bool) else str(value)


def plain(name: str) -> str:
    """Return a name that is valid for a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)


def finish(entry: Entry, environ: dict[str, str], test: bool) -> str:
    """Run or resume it, and test it, unless already done; return an error message if it fails.

    Raises:
        RefusedRun: if `fit` refuses the settings.
    """
    words = seeded(entry)
    if finished(entry) is None and (failure := fit(entry, words, environ)):
        return failure
    run = finished(entry)
    if test and run is not None and (failure := run_test(run, words, environ)):
        return f"{entry.setting}, seed {entry.seed}, could not be tested: {failure}"
    return ""


def is_done(entry: Entry, test: bool) -> bool:
    """Return whether a run is finished, and tested if asked."""
    run = finished(entry)
    return run is not None and (not test or (run / METRICS).is_file())


def no_metric(entry: Entry, options: argparse.Namespace) -> str:
    """Return a sentence that says that a finished run lacks the metric; empty if it has it."""
    try:
        points_of(finished(entry) or entry.folder, options)
    except ConfigurationError as error:
        return f"{error} The runs are kept: the same command with another --metric or --at reads them."
    return ""


def points_of(run: Path, options: argparse.Namespace) -> list[tuple[int, float]]:
    """Return the points of the metric in a finished run, or in its test.

    Raises:
        ConfigurationError: if there are none, with the tags to choose from.
    """
    return tested_curve(run, options.metric) if options.test else curve_of(run, options.metric, options.at)


def curve_of(folder: Path, metric: str, at: int | None = None) -> list[tuple[int, float]]:
    """Return the metric's points of a finished run, up to `at` environment steps; None for all.

    Raises:
        ConfigurationError: if there are none, with the tags to choose from.
    """
    curves = Curves(folder)
    curves.refresh()
    if metric not in curves.by_tag:
        known = nearest(metric, curves.by_tag, count=len(curves.by_tag))
        raise ConfigurationError(f"{folder} has logged no {metric}: {known}")
    points = [point for point in curves.by_tag[metric].points if at is None or point[0] <= at]
    if not points:
        raise ConfigurationError(f"{folder} has logged no {metric} within {at:,} env steps: raise --at.")
    return points


def last_value(points: Points) -> str:
    """Return the last value of a curve, with its environment steps."""
    return f"{points[-1][1]:.4g} at {points[-1][0]:,} env steps"


def checkpoint_of(run: Path) -> str:
    """Return the path of a run's best checkpoint, or of its last; its folder if it saved none."""
    try:
        return str(checkpoint_in(run))
    except ConfigurationError:
        return f"{run} (no checkpoint)"


def write(
    folder: Path, metric: str, results: list[Result], bands: dict[str, ConfidenceBand], threshold: float | None
) -> None:
    """Write the points as CSV, and the curves as a figure and for TensorBoard, in place of those of an earlier call."""
    with (folder / "curves.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(("setting", "seed", "env_steps", metric))
        for result in results:
            for seed, points in enumerate(result.curves, start=1):
                rows.writerows((result.name, seed, step, value) for step, value in points)
    if bands:
        references = {} if threshold is None else {"threshold": threshold}
        with style():
            (folder / "curves.png").write_bytes(encode(draw_learning_curves({metric: bands}, references)))
    for written in folder.glob("compared/*/events.out.tfevents.*"):
        written.unlink()
        with suppress(OSError):
            written.parent.rmdir()
    for name, course in bands.items():
        board_folder = folder / "compared" / f"{plain(name)[:48]}-{sha256(name.encode()).hexdigest()[:6]}"
        with SummaryWriter(str(board_folder)) as board:
            for step, estimate in zip(course.steps, course.estimates, strict=True):
                board.add_scalar(metric, estimate.value, step)


def summary(result: Result) -> dict[str, object]:
    """Return a setting's results as plain values; null if the threshold is never reached."""
    steps, final = (
        [value if math.isfinite(value) else None for value in each] for each in (result.steps, result.final)
    )
    mean = [value if math.isfinite(value) else None for value in result.mean]
    return {"env_steps": steps, "final": final, "mean": mean, "seeds": len(result.curves), "left_out": result.left_out}
