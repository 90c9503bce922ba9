"""What a trading agent did beside those that nobody trained: a table, a curve, files."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from lightning.pytorch import Callback, Trainer

from callbacks.atomic import atomic_file
from callbacks.boards import boards, show
from callbacks.checkpoint import run_folder

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
    """Compares the agent with the baselines on the days that it was evaluated on; it claims nothing.

    At every evaluation while training: a table and equity curves in TensorBoard, `trading/report` and
    `trading/equity`. After a test: the table on the screen, and beside the checkpoint `trading.json` (the table),
    `trading_SYMBOL.csv` (equity of every policy, weight of the agent, day by day) and `trading_SYMBOL.png`. Figures
    need matplotlib; without it a sentence says so.
    """

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Draw, for every TensorBoard there is."""
        writers = boards(trainer)
        for report in _reports(trainer) if writers else ():
            for writer in writers:
                writer.add_text(f"trading/report/{report.symbol}", markdown(report.rows), pl_module.env_steps)
            if (picture := equity_picture(report)) is not None:
                show(writers, {f"trading/equity/{report.symbol}": picture}, pl_module.env_steps)

    def on_test_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write the files, and say where they are."""
        if not trainer.is_global_zero:
            return
        folder, reports = run_folder(trainer.ckpt_path, trainer.default_root_dir), _reports(trainer)
        for report in reports:
            first, last = (str(day)[:10] for day in report.day[[0, -1]])
            pl_module.print(f"{report.symbol}, {first} to {last}:\n{plain_table(report.rows)}")
            name = report.symbol.replace("/", "_")  # a pair of currencies
            with atomic_file(folder / f"trading_{name}.csv") as file:
                file.write(day_by_day(report).encode())
            picture = equity_picture(report)
            if picture is None:
                pl_module.print("No equity figure: it needs matplotlib, pip install -e '.[trading]'.")
            else:
                _write_png(folder / f"trading_{name}.png", picture)
        tables = [
            {"symbol": each.symbol, "days": [str(each.day[0]), str(each.day[-1])], "policies": each.rows}
            for each in reports
        ]
        with atomic_file(folder / "trading.json") as file:
            file.write(json.dumps(tables, indent=2).encode() + b"\n")
        pl_module.print(f"Report written to {folder / 'trading.json'}")


def _reports(trainer: Any) -> Sequence[Any]:
    return trainer.datamodule.reports() if hasattr(trainer.datamodule, "reports") else ()


def markdown(rows: Mapping[str, Mapping[str, float]]) -> str:
    """The table as TensorBoard shows it."""
    head = ["policy", *MEASURES.values()]
    lines = [[name, *(f"{row[measure]:.3f}" for measure in MEASURES)] for name, row in rows.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *lines])


def plain_table(rows: Mapping[str, Mapping[str, float]]) -> str:
    """The table as a terminal shows it."""
    width = max(map(len, rows))
    head = " " * width + "".join(f"  {title}" for title in MEASURES.values())
    lines = [
        f"{name:<{width}}" + "".join(f"  {row[measure]:>{len(title)}.3f}" for measure, title in MEASURES.items())
        for name, row in rows.items()
    ]
    return "\n".join([head, *lines])


def day_by_day(report: Any) -> str:
    """CSV text: the day of every decision, the log equity of every policy after it, and the agent's weight."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["day", *report.equity, "weight of the agent"])
    writer.writerows(zip(map(str, report.day), *report.equity.values(), report.weight, strict=True))
    return text.getvalue()


def equity_picture(report: Any) -> np.ndarray | None:
    """Equity of every policy over time, uint8 `[H, W, 3]`; None without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # an extra
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(9, 5), layout="constrained")
    canvas, axes = FigureCanvasAgg(figure), figure.subplots()
    for place, (name, equity) in enumerate(report.equity.items()):
        axes.plot(report.day, np.exp(equity), label=name, linewidth=2 if place == 0 else 0.8)
    axes.set(title=f"{report.symbol}: equity, 1 at the start", yscale="log")
    axes.legend(fontsize="small")
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _write_png(path: Any, picture: np.ndarray) -> None:
    from matplotlib.image import imsave

    with atomic_file(path) as file:
        imsave(file, picture, format="png")
