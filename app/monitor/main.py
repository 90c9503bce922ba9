"""`python -m app monitor`: show a run's curves and the machine's load in a terminal, without torch or Lightning."""

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from app.cli.error_messages import PlainParser, exit_with_error
from app.monitor.curves import Curve, Curves, sparkline
from app.monitor.event_files import EVENT_FILES, EventFile, newest_event_time
from app.monitor.system_load import MachineLoad
from datamodules.core.errors import nearest
from datamodules.core.files.printable import printable_line

DEFAULT_ROOT = Path("runs")
GROUPS = ("rollout", "train", "eval", "time", "gpu", "system")
"""Groups shown first, in this order."""

JUST_BEGUN_S = 120.0
"""Age in seconds up to which a run without metrics counts as started."""

HEARTBEAT = "heartbeat.json"
"""File of `callbacks.Heartbeat` in a run folder."""

NAME_WIDTH, VALUE_WIDTH, CURVE_WIDTH, STEPS_WIDTH = 18, 10, 18, 9
"""Widths of a table's columns, in characters: two tables fit side by side into 120."""


def main() -> None:
    """Show a run until Ctrl-C, or once.

    Raises:
        SystemExit: with code 2 and one sentence for invalid input.
    """
    options = parsed(sys.argv[2:])
    curves, load, console = Curves(find_run(options.run)), MachineLoad(), Console(markup=False, highlight=False)
    try:
        if options.once:
            console.print(picture(curves, load))
        elif not console.is_terminal:
            watch(curves, load, options.interval, console.print)
        else:
            with Live(console=console, auto_refresh=False) as live:
                watch(curves, load, options.interval, lambda shown: live.update(shown, refresh=True))
    except KeyboardInterrupt:
        return


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the verb's options."""
    parser = PlainParser("python -m app monitor", description="Show a run's curves and the machine, live.")
    parser.add_argument("run", nargs="?", metavar="RUN", help="a run's folder, or one above it: its newest run (runs)")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between updates (5)")
    parser.add_argument("--once", action="store_true", help="show once and exit")
    return parser


def parsed(words: list[str]) -> argparse.Namespace:
    """Parse the options after the verb.

    Raises:
        SystemExit: with code 2 and one sentence if one is invalid.
    """
    options = make_parser().parse_args(words)
    if not 0 < options.interval < math.inf:
        exit_with_error(f"`--interval` is {options.interval:g}; give the seconds between two updates, above 0.")
    return options


def find_run(named: str | None) -> Path:
    """Return the run folder: the folder itself if it is one, else the newest run below it.

    In an experiment that is the run of the highest `version_N`; of several experiments, or runs with other names, the
    one with the newest time inside its event files. Modification times are ignored, since copying changes them. A run
    without metrics is skipped if there is another, unless it has just started.

    Raises:
        SystemExit: with code 2 and one sentence if there is none.
    """
    folder = DEFAULT_ROOT if named is None else Path(named)
    if named is not None and not folder.is_dir():
        siblings = [path.name for path in folder.parent.glob("[!.]*") if path.is_dir()]
        exit_with_error(f"There is no folder `{named}`: {nearest(folder.name, siblings)}")
    if any(path.is_file() for path in folder.glob(EVENT_FILES)):
        return folder
    experiments: dict[Path, dict[int, list[Path]]] = {}
    for path in folder.rglob(EVENT_FILES):
        if path.is_file():  # no link to a file that is gone
            experiment, number = experiment_and_version(path.relative_to(folder))
            experiments.setdefault(experiment, {}).setdefault(number, []).append(path)
    if not experiments:
        where = f"in `{folder}`" if folder.is_dir() else "here (no folder `runs`)"
        exit_with_error(
            f"There is no run {where}: start one with `python -m app fit --config ppo_fast.yaml`, or name its folder."
        )
    return max(newest_of(versions) for versions in experiments.values())[-1]


def experiment_and_version(events: Path) -> tuple[Path, int]:
    """Return an event file's experiment folder, and the N of its `version_N`; its own folder and -1 without one."""
    for folder in events.parents:
        if (version := re.fullmatch(r"version_(\d+)", folder.name)) is not None:
            return folder.parent, int(version[1])
    return events.parent, -1


def newest_of(versions: Mapping[int, list[Path]]) -> tuple[bool, float, Path]:
    """Return whether the newest run of an experiment has started, its newest time, and its folder."""
    found = []
    for number in sorted(versions, reverse=True):
        time_of, events = max((newest_event_time(path) or -math.inf, path) for path in versions[number])
        begun = any(has_begun(path) for path in versions[number])
        found.append((begun, time_of, events.parent))
        if begun:
            break
    return found[-1] if found[-1][0] else found[0]


def has_begun(events: Path) -> bool:
    """Return whether an event file holds a metric, or is too new to hold one."""
    try:
        young = time.time() - (newest_event_time(events) or -math.inf) < JUST_BEGUN_S
        return young or bool(EventFile(events).read())
    except OSError:
        return False


def watch(curves: Curves, load: MachineLoad, interval: float, show: Callable[[RenderableType], None]) -> NoReturn:
    """Show updated views, `interval` seconds apart."""
    while True:
        show(picture(curves, load))
        time.sleep(interval)


def picture(curves: Curves, load: MachineLoad) -> RenderableType:
    """Return the current view."""
    curves.refresh()
    written_at = curves.written_at
    written = "gone" if written_at is None else f"written {duration(time.time() - written_at)} ago"
    beat = last_iteration(curves.run)
    head = Text(f"{printable_line(str(curves.run))}  {curves.env_steps:,} env steps, {written}{beat}", style="bold")
    groups = curves.groups()
    if not groups:
        return Group(head, *load.lines(), "No metrics yet.")
    ordered = sorted(groups, key=lambda group: (GROUPS.index(group) if group in GROUPS else len(GROUPS), group))
    tables = [table(group, groups[group]) for group in ordered]
    return Group(head, *load.lines(), Columns(tables))


def last_iteration(run: Path) -> str:
    """Return when the last iteration ended, by the file of `callbacks.Heartbeat`; empty without one."""
    try:
        beat = json.loads((run / HEARTBEAT).read_text(encoding="utf-8"))
        age, iteration = time.time() - float(beat["time"]), int(beat["iteration"])
    except (OSError, ValueError, TypeError, KeyError):
        return ""
    return f", iteration {iteration:,} {duration(age)} ago"


def table(group: str, curves: Mapping[str, Curve]) -> Table:
    """Return a table of one group of curves: name, last value, sparkline, and the env steps of the last value."""
    rows = Table(box=None, padding=(0, 1, 0, 0))
    rows.add_column(printable_line(group), width=NAME_WIDTH, header_style="bold cyan", no_wrap=True)
    rows.add_column("last", width=VALUE_WIDTH, justify="right", header_style="dim")
    rows.add_column("", width=CURVE_WIDTH, style="green")
    rows.add_column("env steps", width=STEPS_WIDTH, justify="right", style="dim", header_style="dim")
    for name, curve in curves.items():
        step, value = curve.last
        rows.add_row(printable_line(name), number(value), sparkline(curve.points, CURVE_WIDTH), count(step))
    return rows


def number(value: float) -> str:
    """Format a value in at most ten characters."""
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e7 else f"{value:.4g}"


def count(steps: int) -> str:
    """Format env steps in at most nine characters."""
    return f"{steps:,}" if steps < 1e7 else f"{steps / 1e6:,.1f} M"


def duration(seconds: float) -> str:
    """Format seconds in the most readable unit."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
