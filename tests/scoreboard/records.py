"""Tasks of the scoreboard, records of their runs, and the page that compares them."""

import hashlib
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import yaml

from callbacks.run_control.atomic_write import atomic_write

ROOT = Path(__file__).parents[2]
REFERENCES = Path(__file__).with_name("references.yaml")
RECORDS = ROOT / "docs" / "experiments" / "scoreboard.json"
PAGE = RECORDS.with_suffix(".md")
T_95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Two-sided 95 % quantiles of Student's t by degrees of freedom."""


@dataclass(frozen=True)
class Task:
    """Config and settings, with the value that its runs are compared with.

    Args:
        config: a shipped config.
        env: the environment, with its version.
        reference: value of `metric` that `source` reports; `deviation`: the standard deviation reported beside it.
        bar: the least mean over the seeds that passes; None: the reference less its deviation.
        settings: words of the command line.
        metric: name of the statistic of `python -m app test`.
        seeds: number of runs, with seeds 1, 2, ...
        episodes: greedy episodes that judge the last weights of a run.
    """

    config: str
    env: str
    reference: float
    source: str
    deviation: float = 0.0
    bar: float | None = None
    settings: tuple[str, ...] = ()
    metric: str = "return_mean"
    seeds: int = 3
    episodes: int = 100

    @property
    def least(self) -> float:
        """The least mean over the seeds that passes."""
        return self.reference - self.deviation if self.bar is None else self.bar

    @property
    def version(self) -> str:
        """Hash of the config's text and the settings: a record of another version is made anew."""
        text = (ROOT / "configs" / self.config).read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if not line.startswith("#")]
        return hashlib.sha256("\n".join([*lines, *self.settings]).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Record:
    """Result of one run: the metric of its last weights, training's wall-clock seconds, and the machine."""

    config: str
    env: str
    seed: int
    version: str
    metric: str
    value: float
    seconds: float
    machine: str


def read_tasks() -> list[Task]:
    """Return the tasks in the order of the file."""
    entries = yaml.safe_load(REFERENCES.read_text(encoding="utf-8"))
    return [Task(**entry | {"settings": tuple(entry.get("settings", ()))}) for entry in entries]


def read_records(path: Path = RECORDS) -> list[Record]:
    """Return the records of a file, none if it does not exist."""
    return [Record(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))] if path.is_file() else []


def write_records(records: Iterable[Record], path: Path = RECORDS) -> None:
    """Write records in a fixed order; a kill loses none."""
    order = sorted(records, key=lambda record: (record.config, record.env, record.seed))
    lines = ",\n".join(json.dumps(asdict(record)) for record in order)
    with atomic_write(path) as file:
        file.write(f"[\n{lines}\n]\n".encode())


def records_of(task: Task, records: Iterable[Record]) -> list[Record]:
    """Return the records of a task as its config now stands, by seed."""
    wanted = (task.config, task.env, task.version, task.metric)
    mine = [each for each in records if (each.config, each.env, each.version, each.metric) == wanted]
    return sorted(mine, key=lambda record: record.seed)


def missing_seeds(task: Task, records: Iterable[Record]) -> list[int]:
    """Return the seeds of a task that have no record."""
    return sorted({*range(1, task.seeds + 1)} - {record.seed for record in records_of(task, records)})


def mean_and_interval(values: Sequence[float]) -> str:
    """Return the mean with the half-width of its 95 % interval (Student's t), from two values on."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return f"{mean:.6g}"
    half = T_95[min(len(values) - 1, max(T_95))] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{mean:.4g} ± {half:.3g}"


def outcome(task: Task, done: Sequence[Record]) -> str:
    """Return whether a task passes, fails, or how many of its runs are missing."""
    if len(done) < task.seeds:
        return f"{len(done)} of {task.seeds} runs made"
    return "passes" if statistics.fmean(record.value for record in done) >= task.least else "**fails**"


def line(task: Task, records: Iterable[Record]) -> str:
    """Return the row of a task."""
    done = records_of(task, records)
    values = [record.value for record in done]
    reference = f"{task.reference:g}" + (f" ± {task.deviation:g}" if task.deviation else "")
    cells = (
        f"`{task.config}`",
        task.env,
        task.metric.removesuffix("_mean"),
        ", ".join(f"{value:.4g}" for value in values) or "-",
        mean_and_interval(values) if values else "-",
        f"{reference} ({task.source})",
        f"{task.least:g}",
        outcome(task, done),
        f"{statistics.fmean(record.seconds for record in done):.0f}" if done else "-",
        "; ".join(sorted({record.machine for record in done})) or "-",
    )
    return f"| {' | '.join(cells)} |"


def page(tasks: Iterable[Task], records: Sequence[Record]) -> str:
    """Return the page of the scoreboard."""
    rows = "\n".join(line(task, records) for task in tasks)
    return (
        "<!-- Written by `python -m tests.scoreboard`. -->\n\n# Scoreboard\n\n"
        "Configs trained to their end, beside a published or known reference. A value is the mean over 100"
        " evaluation episodes of the last weights (MuJoCo 10, `ppo_snake.yaml` 256), greedy unless the config samples"
        " actions, not of the best checkpoint. A task passes if the mean over its seeds reaches the bar: the reference"
        " less its standard deviation, unless a bar is named. ± of a mean is a 95 % interval over the seeds. Seconds"
        " are those of a whole `fit`.\n\n"
        "`make scoreboard` makes the missing runs and writes this page; it can be stopped and started again."
        ' `make scoreboard ARGS="ppo_mujoco.yaml --jobs 4"` makes those of one config, four at a time.\n\n'
        "| config | environment | metric | seeds 1, 2, ... | mean | reference | bar | outcome | seconds | machine |\n"
        f"|---|---|---|---|---|---|---|---|---|---|\n{rows}\n"
    )
