"""`python -m app plot`: draw the curves of any runs in one figure; seeds of one config become a band."""

import argparse
import csv
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from app.class_paths import POPULATION
from app.cli.error_messages import PlainParser, exit_with_error
from app.monitor.curves import Curves
from app.monitor.event_files import EVENT_FILES
from app.plot.learning_curves import draw_learning_curves
from app.plot.statistics import Points, confidence_band
from app.runs.attempts import is_superseded
from callbacks.figures.plotting import encode, style
from datamodules.core.errors import nearest
from datamodules.core.files.printable import printable

FIGURES = (".png", ".pdf", ".svg")
COLUMNS = ("setting", "seed", "env_steps")
"""First columns of a CSV file of curves; one column per tag follows."""


class Run(NamedTuple):
    """Logged data of a run.   key: equal for seeds of one setting.   curves: points by tag.

    place: the parts of its folder's absolute path; of a run in a CSV file those of the file, the setting and the seed.
    """

    key: str
    name: str
    seed: str
    curves: dict[str, Points]
    place: tuple[str, ...]

    def has_values(self, tag: str) -> bool:
        """Return whether the run logged a finite value of a tag."""
        return any(math.isfinite(value) for _, value in self.curves.get(tag, ()))


def main() -> None:
    """Draw the figure, or write the points.

    Raises:
        SystemExit: with code 2 and one sentence for invalid input.
    """
    options = checked(make_parser().parse_args(sys.argv[2:]))
    runs = [run for named in options.runs for run in read_runs(Path(named))]
    settings = named_settings(runs)
    for tag in options.tag:
        if not any(run.curves.get(tag) for run in runs):
            known = {tag for run in runs for tag in run.curves}
            exit_with_error(f"No run has logged {tag}: {nearest(tag, known)}")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    write(options, settings)
    print(printable(summary(options, settings)))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the verb's options."""
    parser = PlainParser("python -m app plot", description=__doc__, allow_abbrev=False)
    parser.add_argument("runs", nargs="+", metavar="RUN", help=(
        "a run's folder, a folder above some, or a CSV file of curves; runs that differ only in their seed are one line"
    ))  # fmt: skip
    parser.add_argument("--tag", action="append", help="what to draw, one panel each (eval/return_mean); repeatable")
    parser.add_argument("--output", type=Path, default=Path("curves.png"), help=(
        "file to write (curves.png): .png, .pdf or .svg; .csv writes the points instead, to be drawn later"
    ))  # fmt: skip
    parser.add_argument("--reference", action="append", default=[], metavar="NAME=VALUE", help=(
        "a dashed line to compare with; repeatable"
    ))  # fmt: skip
    parser.add_argument("--title", help="title of the figure (default: the tags)")
    return parser


def checked(options: argparse.Namespace) -> argparse.Namespace:
    """Check the options, and give references as a dict."""
    options.tag = list(dict.fromkeys(options.tag or ["eval/return_mean"]))
    if options.output.suffix not in (*FIGURES, ".csv"):
        exit_with_error(f"--output {options.output} has no known ending: use {', '.join(FIGURES)} or .csv.")
    references = {}
    for item in options.reference:
        name, _, value = item.rpartition("=")
        try:
            references[name] = float(value)
        except ValueError:
            name = ""
        if not name or not math.isfinite(references[name]):
            exit_with_error(
                f"--reference {item} is not a reference: write NAME=VALUE, for example --reference random=0.15"
            )
    options.references = references
    return options


def read_runs(named: Path) -> Iterator[Run]:
    """Yield the runs of an argument of the command line."""
    if named.suffix == ".csv" and named.is_file():
        yield from read_csv(named)
        return
    if not named.is_dir():
        siblings = [path.name for path in named.parent.glob("[!.]*")]
        exit_with_error(f"There is no run `{named}`: {nearest(named.name, siblings)}")
    folders = {path.parent for path in named.rglob(EVENT_FILES) if "compared" not in path.relative_to(named).parts}
    if any(path.is_file() for path in named.glob(EVENT_FILES)):
        folders = {named}
    if not folders:
        exit_with_error(f"There is no run in `{named}`: name a run's folder, or one above runs.")
    for folder in sorted(folder for folder in folders if folder == named or not is_superseded(folder)):
        key, seed = setting_of(folder)
        if POPULATION in key:
            continue  # its members are runs of their own
        curves = Curves(folder)
        curves.refresh()
        absolute = folder.resolve()
        points: dict[str, Points] = {tag: curve.points for tag, curve in curves.by_tag.items()}
        yield Run(key, absolute.parent.name, seed, points, absolute.parts)


def setting_of(folder: Path) -> tuple[str, str]:
    """Return a key equal for all seeds of a run's setting, and its seed; the folder if there is no config."""
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        seed = str(config.pop("seed_everything", ""))
        config.get("trainer", {}).pop("logger", None)
    except (OSError, yaml.YAMLError, AttributeError, UnicodeDecodeError):
        return str(folder.resolve()), folder.name
    return json.dumps({**config, "ckpt_path": None}, sort_keys=True, default=str), seed


def read_csv(path: Path) -> Iterator[Run]:
    """Yield the runs of a CSV file of curves.

    Raises:
        SystemExit: with code 2 and one sentence if it is not one.
    """
    runs: dict[tuple[str, str], dict[str, list[tuple[int, float]]]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            if tuple(rows.fieldnames or ())[:3] != COLUMNS:
                raise ValueError(f"its columns are not {', '.join(COLUMNS)} and tags")
            for row in rows:
                curves = runs.setdefault((row.pop("setting"), row.pop("seed")), {})
                step = int(row.pop("env_steps"))
                for tag, value in row.items():
                    if value:
                        curves.setdefault(tag, []).append((step, float(value)))
    except (ValueError, TypeError, csv.Error, UnicodeDecodeError) as error:
        exit_with_error(f"{path} holds no curves that can be read: {error}.")
    for (setting, seed), curves in runs.items():
        yield Run(setting, setting, seed, dict(curves), (*path.resolve().parts, setting, f"seed_{seed}"))


def named_settings(runs: list[Run]) -> dict[str, list[Run]]:
    """Group runs by setting, named after their experiment.

    Settings that share an experiment are named after the folder of their first run, such as `ppo_fast/version_2`, and
    as many folders above it as tell them apart.
    """
    by_key: dict[str, list[Run]] = {}
    for run in runs:
        by_key.setdefault(run.key, []).append(run)
    firsts = [group[0] for group in by_key.values()]
    names = [run.name for run in firsts]
    for parts in range(2, 1 + max((len(run.place) for run in firsts), default=0)):
        counts = Counter(names)
        names = [
            name if counts[name] == 1 else "/".join(run.place[-parts:]) for name, run in zip(names, firsts, strict=True)
        ]
    return dict(zip(names, by_key.values(), strict=True))


def summary(options: argparse.Namespace, settings: dict[str, list[Run]]) -> str:
    """Return what was written, and a line for each tag that some runs have no finite value of."""
    drawn = [[run for run in group if any(map(run.has_values, options.tag))] for group in settings.values()]
    counts = f"runs {sum(map(len, drawn))}, settings {sum(map(bool, drawn))}"
    lines = [f"Wrote {options.output}: {counts}."]
    for tag in options.tag:
        without = ["/".join(run.place[-2:]) for group in settings.values() for run in group if not run.has_values(tag)]
        if without:
            lines.append(f"Left out, because they have no finite value of {tag}: {', '.join(without)}.")
    return "\n".join(lines)


def write(options: argparse.Namespace, settings: dict[str, list[Run]]) -> None:
    """Write the requested file."""
    if options.output.suffix == ".csv":
        write_csv(options.output, settings, options.tag)
        return
    panels = {}
    for tag in options.tag:
        bands = {}
        for name, group in settings.items():
            curves = [run.curves[tag] for run in group if run.has_values(tag)]
            bands[name if len(curves) < 2 else f"{name} ({len(curves)} seeds)"] = confidence_band(curves)
        panels[tag] = {name: course for name, course in bands.items() if course.steps}
        if not panels[tag]:
            exit_with_error(f"{tag} has no finite values, so there is nothing to draw.")
    with style():
        figure = draw_learning_curves(panels, options.references, options.title)
        options.output.write_bytes(encode(figure, options.output.suffix[1:]))


def write_csv(path: Path, settings: dict[str, list[Run]], tags: list[str]) -> None:
    """Write the points of all runs, one row per point."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, (*COLUMNS, *tags), lineterminator="\n")
        rows.writeheader()
        for name, group in settings.items():
            for run in group:
                where = {"setting": name, "seed": run.seed}
                for tag in tags:
                    rows.writerows({**where, "env_steps": step, tag: value} for step, value in run.curves.get(tag, []))
