import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from callbacks.figures.plotting import pixels, style
from callbacks.figures.trading_report import MEASURES, day_by_day, draw_equity, markdown, plain_table
from tests.contracts.test_configs import run  # noqa: F401  (a fixture)


class Report(NamedTuple):
    """What `datamodules.trading.report` makes."""

    symbol: str
    day: Any
    rows: dict[str, dict[str, float]]
    equity: dict[str, Any]
    weight: Any
    verdict: str = ""


ROW = dict.fromkeys(MEASURES, 0.5)
REPORT = Report(
    "X",
    np.arange("2020-01-01", "2020-01-04", dtype="datetime64[D]"),
    {"agent": ROW},
    {"agent": np.zeros(3)},
    np.ones(3),
)


def test_tables_have_a_row_a_policy_and_a_column_a_measure() -> None:
    assert markdown(REPORT.rows).splitlines()[-1].count("0.500") == len(MEASURES)
    assert plain_table(REPORT.rows).splitlines()[-1].startswith("agent")


def test_the_days_read_back() -> None:
    assert day_by_day(REPORT).splitlines()[:2] == ["day,agent,weight of the agent", "2020-01-01,0.0,1.0"]


def test_equity_is_drawn_over_dates_with_a_line_for_every_policy() -> None:
    with style():
        figure = draw_equity(REPORT)

    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("date", "equity (1 at the start)")
    assert axes.get_title() == "X: equity, 2020-01-01 to 2020-01-03" and axes.lines[0].get_ydata().tolist() == [1.0] * 3
    assert [text.get_text() for text in figure.legends[0].texts] == ["agent"] and pixels(figure).std() > 0


def test_a_run_shows_the_report_and_a_test_writes_it(run: Any, tmp_path: Path) -> None:  # noqa: F811
    words = ["--config", "sac_options_synthetic.yaml", "--data.total_env_steps=128", "--data.num_envs=4"]
    words += ["--data.synthetic={bars: 900}", "--data.env_kwargs={embargo: 5}", "--trainer.accelerator=cpu"]
    run("fit", *words)

    said = run("test", *words, "--ckpt_path", "last")

    (folder,) = tmp_path.glob("runs/*/version_0")
    assert (folder / "trading_REGIMES.png").is_file()
    (table,) = json.loads((folder / "trading.json").read_text())
    assert table["verdict"] in said and "bars" in table["verdict"]
    assert "buy and hold" in said and table["policies"].keys() >= {"agent", "cash", "momentum 12-1"}
    assert len((folder / "trading_REGIMES.csv").read_text().splitlines()) > 100
    assert "trading/report/REGIMES/text_summary" in EventAccumulator(str(folder)).Reload().Tags()["tensors"]
