"""Compare an agent with the baselines on the same days, with the same costs."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.trading.account import Costs, account
from datamodules.trading.baselines import BASELINES, random_timing
from datamodules.trading.performance import (
    Performance,
    min_track_record_length,
    performance,
    sharpe_difference_interval,
    standardized_difference,
)
from datamodules.trading.prices.price_files import Numbers, Prices

AGENT, REFERENCE, RANDOM = "agent", "buy and hold", "random, equal turnover"


class Report(NamedTuple):
    """Results of all policies for one symbol and one period.

    rows: policy -> measure -> value: `Performance` and the interval of the Sharpe ratio's difference to buy and hold;
    for the random policies, which hold the agent's weights at random times (`random_timing`), the mean over up to 200
    of them and their 95 % interval.
    equity: policy -> log equity after every bar `[bars]`.   weight: of the agent `[bars]`.   day: of the decisions.
    verdict: sentence on whether agent and buy and hold differ significantly.
    """

    symbol: str
    day: NDArray[np.datetime64]
    rows: dict[str, dict[str, float]]
    equity: dict[str, Numbers]
    weight: Numbers
    verdict: str


def report(
    prices: Prices,
    gain: Tensor,
    bars: slice,
    weight: Tensor,
    *,
    costs: Costs,
    limits: tuple[float, float],
    bars_per_year: int = 252,
    others: Mapping[str, Numbers] | None = None,
) -> Report:
    """Compute the accounts of the agent's weights and of every baseline.

    Args:
        gain: of every bar of the symbol (`datamodules.trading.prices.lookup_tables.Tables.gain`).   bars: bars on which
            the agent decided.
        weight: the agent's weight on each of them.   limits: position limits, also for the baselines.
        others: weights on all bars of further baselines, by the names of their rows.
    """
    rules = {name: path(prices, bars_per_year) for name, path in BASELINES.items()} | dict(others or {})
    paths = {AGENT: weight.double().cpu().numpy()}
    paths |= {name: path[bars].clip(*limits) for name, path in rules.items()}
    window = gain[bars].cpu()

    def outcome(path: Numbers) -> tuple[Numbers, Performance]:
        done = account(torch.from_numpy(path), window, costs)
        growth = done.factor.log().numpy()
        return growth, performance(growth, path, done.traded.numpy(), done.cost.numpy(), bars_per_year=bars_per_year)

    outcomes = {name: outcome(path) for name, path in paths.items()}
    rows = {name: measured._asdict() for name, (_, measured) in outcomes.items()}
    reference = np.expm1(outcomes[REFERENCE][0])
    intervals = {
        name: sharpe_difference_interval(np.expm1(growth), reference, bars_per_year=bars_per_year)
        for name, (growth, _) in outcomes.items()
    }
    drawn = [outcome(path) for path in random_timing(paths[AGENT])]
    rows[RANDOM] = Performance(*np.mean([measured for _, measured in drawn], axis=0).tolist())._asdict()
    differences = [measured.sharpe - rows[REFERENCE]["sharpe"] for _, measured in drawn]
    intervals[RANDOM] = tuple(np.quantile(differences, (0.025, 0.975)).tolist())
    for name, interval in intervals.items():
        rows[name] |= dict(zip(("sharpe_difference_low", "sharpe_difference_high"), interval, strict=True))
    equity = {name: np.cumsum(growth) for name, (growth, _) in outcomes.items()}
    equity[RANDOM] = np.mean([np.cumsum(growth) for growth, _ in drawn], axis=0)
    excess = standardized_difference(np.expm1(outcomes[AGENT][0]), reference)
    return Report(prices.symbol, prices.time[bars], rows, equity, paths[AGENT], verdict(*intervals[AGENT], excess))


def verdict(low: float, high: float, excess: Numbers) -> str:
    """Return a sentence on whether the Sharpe ratios of agent and buy and hold differ significantly.

    Args:
        low, high: 95 % interval of the difference of the Sharpe ratios.
        excess: standardised difference of the returns, `[bars]` (`standardized_difference`).
    """
    bars, interval = len(excess), f"the 95 % interval of the difference of Sharpe ratios, {low:.2f} to {high:.2f},"
    if low > 0 or high < 0:
        kind = "better" if low > 0 else "worse"
        return f"The agent is {kind} than buy and hold on these {bars:,} bars: {interval} excludes 0."
    short = f"These {bars:,} bars are too few to distinguish the agent from buy and hold: {interval} includes 0."
    needed = min_track_record_length(excess)
    if not np.isfinite(needed):
        return f"{short} The agent's Sharpe ratio is not the higher one, so more bars would not show skill."
    return f"{short} The minimum track record length of this difference is {needed:,.0f} bars, if independent."
