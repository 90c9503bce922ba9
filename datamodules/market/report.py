"""An agent beside the baselines: the same days, the same costs, the same arithmetic."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.market.account import Costs, account
from datamodules.market.baselines import BASELINES, at_random
from datamodules.market.performance import performance, sharpe_difference_interval
from datamodules.market.prices import Numbers, Prices

AGENT, REFERENCE = "agent", "buy and hold"


class Report(NamedTuple):
    """One symbol on one window: what the policies of every row did.

    rows: policy -> measure -> value, `Performance` and the interval of the Sharpe ratio minus buy and hold's.
    equity: policy -> log equity after every bar `[bars]`.   weight: of the agent `[bars]`.   day: of the decisions.
    """

    symbol: str
    day: NDArray[np.datetime64]
    rows: dict[str, dict[str, float]]
    equity: dict[str, Numbers]
    weight: Numbers


def report(
    prices: Prices,
    gain: Tensor,
    bars: slice,
    weight: Tensor,
    *,
    costs: Costs,
    limits: tuple[float, float],
    bars_per_year: int = 252,
) -> Report:
    """Account for the agent's weights and for every baseline.

    Args:
        gain: of every bar of the symbol (`datamodules.market.tables.Tables.gain`).   bars: on which the agent decided.
        weight: the agent's, one for each of them.   limits: of positions, for the baselines too.
    """
    paths = {AGENT: weight.double().cpu().numpy()}
    paths |= {name: path(prices, bars_per_year)[bars].clip(*limits) for name, path in BASELINES.items()}
    window = gain[bars].cpu()
    traded = float(account(torch.from_numpy(paths[AGENT]), window, costs).traded.mean())
    paths["random, equal turnover"] = at_random(len(window), traded).clip(*limits)
    growths, rows = {}, {}
    for name, path in paths.items():
        done = account(torch.from_numpy(path), window, costs)
        growths[name] = done.factor.log().numpy()
        measured = performance(growths[name], path, done.traded.numpy(), done.cost.numpy(), bars_per_year=bars_per_year)
        rows[name] = measured._asdict()
    for name, growth in growths.items():
        interval = sharpe_difference_interval(
            np.expm1(growth), np.expm1(growths[REFERENCE]), bars_per_year=bars_per_year
        )
        rows[name] |= dict(zip(("sharpe_difference_low", "sharpe_difference_high"), interval, strict=True))
    equity = {name: np.cumsum(growth) for name, growth in growths.items()}
    return Report(prices.symbol, prices.time[bars], rows, equity, paths[AGENT])
