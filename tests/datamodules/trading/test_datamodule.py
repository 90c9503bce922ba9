import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput, PolicyOutput, State
from datamodules.trading.account import Costs
from datamodules.trading.datamodule import TradingDataModule
from datamodules.trading.prices.lookup_tables import tables
from datamodules.trading.prices.synthetic import regime, synthetic_prices
from datamodules.trading.report import report
from tests.support.price_fixtures import with_gaps, write_lines
from tests.support.small_runs import trainer

SMALL: dict[str, Any] = {"synthetic": {"bars": 900}, "env_kwargs": {"embargo": 5}, "num_envs": 4, "batch_size": 8}


class Holder:
    """Holds everything, always."""

    def initial_state(self, batch: int) -> State:
        return {}

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.zeros(*shape, 1)

    def act(self, inputs: PolicyInput, *_: Any, **__: Any) -> tuple[PolicyOutput, State]:
        return PolicyOutput(torch.ones(len(inputs.obs), 1), {}), inputs.state


class HeldData(TradingDataModule):
    """Traded by a holder instead of a module that learns."""

    @property
    def _actor(self) -> Any:
        return Holder()


def held(tmp_path: Path, symbol: str = "REGIMES", **changes: Any) -> HeldData:
    data = HeldData(symbol, **{**SMALL, **changes})
    data.trainer = trainer(tmp_path)
    return data


def test_whoever_always_holds_is_buy_and_hold(tmp_path: Path) -> None:
    (report,) = held(tmp_path).reports()

    assert report.rows["agent"] == report.rows["buy and hold"]
    assert report.rows["agent"]["sharpe_difference_low"] == 0 == report.rows["cash"]["log_return"]
    assert len(report.equity) == 10 and all(len(equity) == len(report.day) for equity in report.equity.values())


def test_buy_and_hold_is_what_the_file_says(tmp_path: Path) -> None:
    """From its opens alone, an adjusted 2 for 1 split and gaps among them: one trade, then the price."""
    prices = with_gaps(synthetic_prices("WALK", bars=900))
    raw = np.where(np.arange(900) < 850, 2.0, 1.0)
    lines = [
        f"{str(day)[:10]},{o * f},{h * f},{low * f},{c * f},{v},{c}"
        for day, o, h, low, c, v, f in zip(*prices[1:], raw, strict=True)
    ]
    path = write_lines(tmp_path / "X.csv", lines, "Date,Open,High,Low,Close,Volume,Adj. Close")
    data = held(tmp_path, symbol="X", prices=str(path), synthetic=None)
    data.test_dataloader()
    (report,) = data.reports()

    first, last = (int(np.searchsorted(prices.time, day)) for day in report.day[[0, -1]])
    opens = prices.open[first + 1 : last + 3]
    growth = np.log(opens[1:] / opens[:-1])
    growth[0] = np.log(opens[1] / opens[0] - 0.001)
    assert first < 850 < last and len(growth) == len(report.day)
    expected = {"log_return": growth.sum(), "cagr": np.expm1(growth.sum() * 252 / len(growth)), "cost": 0.001}
    assert {name: report.rows["buy and hold"][name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("limits", [{}, {"max_short": 0.0}, {"max_short": 0.2, "max_long": 0.6}], ids=str)
def test_random_policies_trade_and_hold_as_much_as_the_agent_within_the_limits(limits: dict[str, float]) -> None:
    prices, costs = with_gaps(synthetic_prices("WALK", bars=1200)), Costs(0.001, 0.0)
    gain, bars = tables([prices], window=1, lag=1).gain[0], slice(300, 1100)
    low, high = -limits.get("max_short", 1.0), limits.get("max_long", 1.0)
    weight = torch.from_numpy(np.random.default_rng(0).normal(0.2, 0.5, 800).clip(low, high))

    rows = report(prices, gain, bars, weight, costs=costs, limits=(low, high)).rows

    agent, random = rows["agent"], rows["random, equal turnover"]
    assert random["exposure"] == pytest.approx(agent["exposure"], rel=1e-9)
    assert random["turnover"] == pytest.approx(agent["turnover"], rel=0.02)
    assert random["cost"] == pytest.approx(agent["cost"], rel=0.02)


def test_the_report_agrees_with_the_evaluation_episode(tmp_path: Path) -> None:
    data = held(tmp_path, symbol="WALK,AR1")

    episodes, reports = data.val_dataloader().run(), data.reports()

    expected = [report.rows["agent"]["log_return"] for report in reports]
    assert episodes.info["log_return"].tolist() == pytest.approx(expected, abs=1e-12)
    assert episodes.info["sharpe"].tolist() == pytest.approx([report.rows["agent"]["sharpe"] for report in reports])
    assert (episodes.episode_return / 100).tolist() == pytest.approx(expected, abs=1e-9)


def test_a_test_plays_the_test_days(tmp_path: Path) -> None:
    data = held(tmp_path)
    val, _ = data.reports()[0].day[[0, -1]]

    data.test_dataloader()

    test, last = data.reports()[0].day[[0, -1]]
    assert val < test < last


def test_it_says_on_which_days_it_trains_validates_and_tests(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        TradingDataModule("REGIMES", val_from="2002-01-01", test_from="2003-01-01", **SMALL)

    assert "validates on 2002-01-01 to" in caplog.text and "tests on 2003-01-01 to" in caplog.text


def test_more_symbols_than_environments_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="fewer than the 3 symbols"):
        TradingDataModule("WALK,AR1,REGIMES", **{**SMALL, "num_envs": 2})


def test_the_regime_of_the_last_decision_is_told_while_fitting(tmp_path: Path) -> None:
    data = held(tmp_path, synthetic={"bars": 900, "seed": 5})
    assert data.active_regime() is None
    collector = data.make_collector()
    collector.collect()

    ruling, bar = data.active_regime(), collector.state.env_state["bar"]

    assert torch.equal(ruling, torch.from_numpy(regime(900, 5))[bar - 1])
    assert held(tmp_path, "WALK").active_regime() is None


@pytest.mark.parametrize(
    ("name", "value", "own"),
    [("symbol", "WALK", "REGIMES"), ("prices", "x.csv", "null"), ("val_from", "2020-01-01", "null"),
     ("synthetic", {"bars": 300}, "{'bars': 900}")],
)  # fmt: skip
def test_arguments_of_the_environment_that_the_data_sets_are_refused(name: str, value: Any, own: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        TradingDataModule("REGIMES", **{**SMALL, "env_kwargs": {name: value}})

    said = f"data.env_kwargs.{name} is {value}, but data.{name}, which is {own}, sets it: set data.{name} instead."
    assert str(refused.value) == said


def test_the_same_value_twice_is_no_contradiction() -> None:
    assert TradingDataModule("WALK", **{**SMALL, "env_kwargs": {"symbol": "WALK"}}).symbols == 1
