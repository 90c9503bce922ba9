"""Test the best checkpoints of a comparison's runs, and summarise what trading agents and baselines earned."""

import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from app.child_processes import run_child
from app.monitor.curves import Curves
from app.plot.statistics import Estimate, bootstrap
from datamodules.core.errors import ConfigurationError, nearest
from datamodules.core.files.printable import counted
from datamodules.core.files.run_checkpoints import checkpoint_in

METRICS, TRADING, LOG = "metrics.json", "trading.json", "test_log.txt"
"""Files of a test in a run's folder."""

AGENT, REFERENCE = "agent", "buy and hold"


def run_test(run: Path, words: Sequence[str], environ: Mapping[str, str]) -> str | None:
    """Test a finished run's best checkpoint, unless it was tested; return the last line of an error."""
    if (run / METRICS).is_file():
        return None
    try:
        checkpoint = checkpoint_in(run).absolute()
    except ConfigurationError as error:
        return str(error)
    command = [sys.executable, "-m", "app", "test", *words, f"--ckpt_path={checkpoint}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = run_child(command, environ, encoding="utf-8", errors="replace", **pipes)
    (run / LOG).write_text(done.stdout + done.stderr, encoding="utf-8")
    said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["nothing"]
    return f"{said[-1]} (all: {run / LOG})" if done.returncode else None


def tested_curve(run: Path, metric: str) -> list[tuple[int, float]]:
    """Return a metric of the test as one point, at the run's last environment step.

    Args:
        metric: its tag, for example `eval/return_mean`.

    Raises:
        ConfigurationError: if the test has no such metric, with those that it has.
    """
    measured = json.loads((run / METRICS).read_text(encoding="utf-8"))
    value = measured.get(metric.partition("/")[2])
    known = [f"eval/{key}" for key, each in measured.items() if isinstance(each, int | float)]
    if not isinstance(value, int | float):
        raise ConfigurationError(f"The test of {run} has no {metric}: {nearest(metric, known, count=len(known))}")
    curves = Curves(run)
    curves.refresh()
    steps = (curve.points[-1][0] for curve in curves.by_tag.values() if curve.points)
    return [(max(steps, default=0), float(value))]


def trading_table(setting: str, runs: Sequence[Path]) -> str:
    """Format the log returns of agent and baselines on the test days, over a setting's runs; empty for other agents.

    Symbols of a run are averaged.
    """
    if not all((run / TRADING).is_file() for run in runs):
        return ""
    reports = [json.loads((run / TRADING).read_text(encoding="utf-8")) for run in runs]
    shared = [
        name for name in reports[0][0]["policies"] if all(name in each["policies"] for one in reports for each in one)
    ]
    earned = {
        name: [statistics.fmean(each["policies"][name]["log_return"] for each in report) for report in reports]
        for name in shared
    }
    width = max(map(len, shared)) + 2
    lines = [
        f"{setting}, {counted(len(runs), 'test')}",
        f"{'log return, mean [95 %]':<{width + 28}}agent less it, mean [95 %]",
    ]
    for name, values in earned.items():
        less = [mine - other for mine, other in zip(earned[AGENT], values, strict=True)]
        difference = "" if name == AGENT else text(bootstrap(less, statistics.fmean))
        lines.append(f"{name:<{width}}{text(bootstrap(values, statistics.fmean)):<28}{difference}".rstrip())
    better = sum(each["policies"][AGENT]["sharpe_difference_low"] > 0 for report in reports for each in report)
    lines.append(
        f"The 95 % interval of the difference of Sharpe ratios to {REFERENCE} is above 0 in {better} of"
        f" {counted(sum(map(len, reports)), 'test')}."
    )
    return "\n".join(lines)


def text(estimate: Estimate) -> str:
    """Format an estimate with its interval."""
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"
