"""TradingReport: compare a trading agent with the baselines, as a table, figures and files."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from lightning.pytorch import Callback, Trainer

from callbacks.figures.plotting import COLOURS, WIDE, encode, legend_below, new_figure, pixels, style
from callbacks.figures.tensorboard import add_images, tensorboard_writers
from callbacks.run_control.atomic_write import atomic_write
from callbacks.run_control.checkpoint import run_folder
from datamodules.core.files.printable import printable

MEASURES = {
    "log_return": "log return",
    "cagr": "growth a year",
    "sharpe": "Sharpe",
    "sharpe_difference_low": "minus buy and hold, from",
    "sharpe_difference_high": "to (95 %)",
    "drawdown": "drawdown",
    "turnover": "turnover a year",
    "cost": "cost",
    "exposure": "exposure",
}
"""Columns of the table."""


class TradingReport(Callback):
    """Compare the agent with the baselines on the days of its evaluation.

    At every evaluation during training: a table and equity curves in TensorBoard, `trading/report` and
    `trading/equity`. After a test: the table on the terminal, and beside the checkpoint `trading.json` (the table),
    `trading_SYMBOL.csv` (daily equity of every policy, weight of the agent) and `trading_SYMBOL.png`.
    """

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Draw the figures for every TensorBoard logger."""
        writers = tensorboard_writers(trainer)
        for report in _reports(trainer) if writers else ():
            for writer in writers:
                text = f"{markdown(report.rows)}\n\n{report.verdict}"
                writer.add_text(f"trading/report/{report.symbol}", text, pl_module.env_steps)
            with style():
                add_images(
                    writers, {f"trading/equity/{report.symbol}": pixels(draw_equity(report))}, pl_module.env_steps
                )

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write the files and print their paths."""
        if not trainer.is_global_zero:
            return
        folder, reports = run_folder(trainer.ckpt_path, trainer.default_root_dir), _reports(trainer)
        for report in reports:
            name = report.symbol.replace("/", "_")  # a pair of currencies
            with atomic_write(folder / f"trading_{name}.csv") as file:
                file.write(day_by_day(report).encode())
            with style(), atomic_write(folder / f"trading_{name}.png") as file:
                file.write(encode(draw_equity(report)))
        tables = [
            {
                "symbol": each.symbol,
                "days": [str(each.day[0]), str(each.day[-1])],
                "policies": each.rows,
                "verdict": each.verdict,
            }
            for each in reports
        ]
        with atomic_write(folder / "trading.json") as file:
            file.write(json.dumps(tables, indent=2).encode() + b"\n")
        for report in reports:
            first, last = (str(day)[:10] for day in report.day[[0, -1]])
            pl_module.print(
                printable(f"{report.symbol}, {first} to {last}:\n{plain_table(report.rows)}\n{report.verdict}")
            )
        pl_module.print(f"Report written to {folder / 'trading.json'}")


def _reports(trainer: Any) -> Sequence[Any]:
    return trainer.datamodule.reports() if hasattr(trainer.datamodule, "reports") else ()


def markdown(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Format the table for TensorBoard."""
    head = ["policy", *MEASURES.values()]
    lines = [[name, *(f"{row[measure]:.3f}" for measure in MEASURES)] for name, row in rows.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def plain_table(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Format the table for a terminal."""
    width = max(map(len, rows))
    head = " " * width + "".join(f"  {title}" for title in MEASURES.values())
    lines = [
        f"{name:<{width}}" + "".join(f"  {row[measure]:>{len(title)}.3f}" for measure, title in MEASURES.items())
        for name, row in rows.items()
    ]
    return "\n".join([head, *lines])


def day_by_day(report: Any) -> str:
    """Return CSV text: the day of every decision, the log equity of every policy after it, and the agent's weight."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["day", *report.equity, "weight of the agent"])
    writer.writerows(zip(map(str, report.day), *report.equity.values(), report.weight, strict=True))
    return text.getvalue()


def draw_equity(report: Any) -> Any:
    """Draw equity of every policy over time, the agent's on top."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    figure, ((axes,),) = new_figure(size=(WIDE, 4.8))
    for place, (name, equity) in enumerate(report.equity.items()):
        look = {"linewidth": 2.4, "zorder": 3} if place == 0 else {"linewidth": 1.2}
        axes.plot(report.day, np.exp(equity), label=name, color=COLOURS[place % len(COLOURS)], **look)
    first, last = (str(day)[:10] for day in report.day[[0, -1]])
    axes.set(title=f"{report.symbol}: equity, {first} to {last}", xlabel="date", ylabel="equity (1 at the start)")
    axes.set_yscale("log", subs=[])
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(MaxNLocator(7) if high < 10 * low else LogLocator(subs=[1, 2, 5]))
    axes.yaxis.set_major_formatter("{x:g}")
    legend_below(figure, axes.lines)
    return figure
