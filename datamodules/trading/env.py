"""Trading one symbol by target weights, without a look ahead.

At the close of bar t the agent sees bars up to t and chooses the weight to hold; it is traded to at the open of bar
t + 1 and held to the open of t + 2. What the account has earned by that open is no part of the observation at the close
of t + 1, which comes before: observations value the account at the close.
"""

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from datamodules.core.errors import UsageError
from datamodules.core.types import Spaces, State
from datamodules.trading.account import RUIN, Costs, drifted, held
from datamodules.trading.performance import LEAST_DEVIATION
from datamodules.trading.prices.features import LIMIT, NAMES, WARMUP
from datamodules.trading.prices.lookup_tables import Tables, tables
from datamodules.trading.prices.price_files import RealJumps
from datamodules.trading.prices.sources import markets
from datamodules.trading.prices.time_split import Part, split_days
from datamodules.trading.prices.trading_calendar import checked_bars_per_year
from datamodules.trading.scripted_options import PORTFOLIO, POSITION, SIX

OWN = ("weight", "log_equity", "rewarded", "known", "fee", "peak", "churn")
TALLIES = ("drawdown", "traded", "cost", "held", "gained", "square", "steps")
"""Numbers of an account, float64, 0 at first; `known` is the log equity before the last trade, `peak` its highest."""

OPTIONS = tuple(option() for option in SIX)
CHURN = 0.95
"""How much of the memory of past trades is left after a bar."""


class Trading:
    """A `TensorEnv` whose rows are accounts, each trading one symbol from one day on.

    Actions: the weight to hold, from -1 (short) to 1 (long), cut to the position limits; `discrete`: 0 short, 1 cash,
    2 long. Reward: `reward_scale` times the change of log equity, as `datamodules.trading.account` has it. Rewards are
    float32, the account float64; what rounding took from one reward is paid with the next, so that an episode's
    rewards add up to its log equity within the rounding of its last one. An account that is ruined terminates; the end
    of the data, or of `episode_bars`, truncates.

    Observations, float32 in [-5, 5], `[6 + 15 window]`: side, size, profit and duration of the position, drawdown and
    churn of the account (`datamodules.trading.scripted_options`), then the features of the last `window` bars, latest first
    (`datamodules.trading.prices.features`).

    Args:
        symbol, prices, synthetic: whose bars, and where they come from (`datamodules.trading.prices.sources.markets`).
        split: train starts anywhere and lasts `episode_bars`; val, test and all are one episode over all their bars,
            row i trading symbol i modulo their number.
        val_from, test_from: first days of validation and test; after 60 % and 80 % of the bars unless given.
        embargo: bars left out before validation and before the test.
        fold, folds: number of a walk-forward fold, from 0, among so many; `val_from` and `test_from` then do not act.
        episode_bars: of a training episode; cut to what there is.
        window: bars whose features are seen.
        cost_bps: commission and slippage, in 1/10,000 of what is traded.
        borrow_rate: paid on short positions, a year.
        max_long, max_short: largest weights on either side, in [0, 1].
        execution: at the next `open`, or at the very `close` that was seen: optimistic.
        discrete: three actions rather than any weight.
        option_mask: report where each of the six options of `datamodules.trading.scripted_options` may begin.
        reward_scale: rewards are so many log returns.
        bars_per_year: for what is reported or charged a year; by the bars' time stamps unless given
            (`datamodules.trading.prices.trading_calendar`), which must not contradict it.
        real_jumps: days whose jumps are no unadjusted splits, such as 2020-03-16, or `all`.

    Raises:
        UsageError: if an argument is out of range, or the prices cannot be used.
    """

    noise_size = 2
    episode_keys = ("log_return", "sharpe", "drawdown", "turnover", "cost", "exposure")
    obs_bounds = (-LIMIT, LIMIT)

    def __init__(
        self,
        symbol: str = "REGIMES",
        prices: str | None = None,
        synthetic: dict[str, Any] | None = None,
        split: Part = "train",
        val_from: str | None = None,
        test_from: str | None = None,
        embargo: int = 64,
        fold: int | None = None,
        folds: int = 3,
        episode_bars: int = 252,
        window: int = 1,
        cost_bps: float = 10.0,
        borrow_rate: float = 0.02,
        max_long: float = 1.0,
        max_short: float = 1.0,
        execution: Literal["open", "close"] = "open",
        discrete: bool = False,
        option_mask: bool = False,
        reward_scale: float = 100.0,
        bars_per_year: int | None = None,
        real_jumps: RealJumps = (),
    ) -> None:
        numbers = {"episode_bars": episode_bars, "window": window}
        numbers |= {} if bars_per_year is None else {"bars_per_year": bars_per_year}
        check_arguments(numbers, (cost_bps, borrow_rate), (max_short, max_long), split, execution)
        self.discrete, self.masks, self.window, self.split = discrete, option_mask, window, split
        self.limits, self.reward_scale = (-max_short, max_long), reward_scale
        self.prices, lag = markets(symbol, prices, synthetic, real_jumps), int(execution == "open")
        self.bars_per_year = checked_bars_per_year(bars_per_year, self.prices[0].time, prices or symbol)
        self.costs = Costs(cost_bps / 10_000, borrow_rate / self.bars_per_year)
        where = (val_from, test_from), (fold, folds)
        self.days = split_days(self.prices[0].time, *where, warmup=WARMUP + window - 1, embargo=embargo)
        self.first, last = self.days.of(split)
        steps = last - lag - self.first
        self.length = self.shortest_truncation = min(episode_bars, steps) if split == "train" else steps
        self.starts = steps - self.length + 1
        self.tables = {torch.device("cpu"): tables(self.prices, window=window, lag=lag)}
        self.spaces = spaces(len(POSITION) + len(PORTFOLIO) + window * len(NAMES), discrete)

    def on(self, device: torch.device) -> Tables:
        """The market's tables on a device, copied there once."""
        if device not in self.tables:
            self.tables[device] = self.tables[torch.device("cpu")].to(device)
        return self.tables[device]

    def initial(self, noise: Tensor) -> State:
        """Accounts in cash, from uniforms `[B, 2]`: symbol and first bar; all symbols in turn outside training."""
        rows = torch.arange(len(noise), device=noise.device)
        symbol = (noise[:, 0] * len(self.prices)).long() if self.split == "train" else rows % len(self.prices)
        bar = self.first + (noise[:, 1] * self.starts).long()
        state = {"symbol": symbol, "bar": bar, "end": bar + self.length, "opened": bar.clone()}
        return state | {name: torch.zeros_like(noise[:, 0], dtype=torch.float64) for name in OWN + TALLIES}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Trade to the chosen weight and hold it for a bar."""
        tables, bar, before = self.on(noise.device), state["bar"], state["weight"]
        index = (state["symbol"], bar)
        weight = self.weight(action)
        past = tables.gain[state["symbol"], bar - 1]
        result = held(weight, drifted(before, past), tables.gain[index], self.costs)
        growth = result.factor.log()
        log_equity = state["log_equity"] + growth
        reward = (self.reward_scale * log_equity - state["rewarded"]).to(torch.float32)
        peak = torch.maximum(state["peak"], state["log_equity"])
        ruined = result.factor <= RUIN
        following = {
            "symbol": state["symbol"],
            "bar": torch.minimum(bar + 1, state["end"]),
            "end": state["end"],
            "opened": torch.where(weight.sign() == before.sign(), state["opened"], bar),
            "weight": weight,
            "log_equity": log_equity,
            "rewarded": state["rewarded"] + reward,
            "known": state["log_equity"],
            "fee": result.cost,
            "peak": peak,
            "drawdown": torch.maximum(state["drawdown"], peak - log_equity),
            "churn": CHURN * state["churn"] + (1 - CHURN) * result.traded,
            "traded": state["traded"] + result.traded,
            "cost": state["cost"] + result.cost,
            "held": state["held"] + weight.abs(),
            "gained": state["gained"] + (result.factor - 1),
            "square": state["square"] + (result.factor - 1).square(),
            "steps": state["steps"] + 1,
        }
        return following, reward, ruined, (bar + 1 >= state["end"]) & ~ruined

    def weight(self, action: Tensor) -> Tensor:
        """Weights `[B]` that actions stand for, within the limits."""
        chosen = action.to(torch.float64) - 1 if self.discrete else action[:, 0].to(torch.float64)
        return chosen.clamp(*self.limits)

    def observation(self, state: State) -> Tensor:
        """What is known at the close of the bar: nothing of the next open, at which the account is valued inside."""
        tables, index = self.on(state["bar"].device), (state["symbol"], state["bar"])
        weight, marked, opened = state["weight"], tables.marked[index], tables.price[state["symbol"], state["opened"]]
        factor = (1 + weight * marked - state["fee"]).clamp(min=RUIN)
        below = state["known"] + factor.log() - state["peak"]
        side = weight.sign()
        own = [
            side,
            drifted(weight, marked),
            10 * side * (tables.close[index] - opened),
            side.abs() * (state["bar"] - state["opened"]) / 20,
            10 * below.clamp(max=0),
            state["churn"],
        ]
        return torch.cat([torch.stack(own, 1).clamp(-LIMIT, LIMIT).float(), tables.features[index]], 1)

    def info(self, state: State) -> dict[str, Tensor]:
        """Of the episode so far, as `datamodules.trading.performance.Performance` defines them."""
        steps = state["steps"].clamp(min=1)
        mean = state["gained"] / steps
        deviation = (state["square"] / steps - mean.square()).clamp(min=LEAST_DEVIATION**2).sqrt()
        info = {
            "log_return": state["log_equity"],
            "sharpe": mean / deviation * self.bars_per_year**0.5,
            "drawdown": -torch.expm1(-state["drawdown"]),
            "turnover": state["traded"] / steps * self.bars_per_year,
            "cost": state["cost"],
            "exposure": state["held"] / steps,
        }
        if self.masks:
            obs = self.observation(state)
            info["option_mask"] = torch.stack([option.initiation(obs) for option in OPTIONS], 1)
        return info


def spaces(numbers: int, discrete: bool) -> Spaces:
    """One weight, or one of three positions, from so many numbers."""
    return Spaces(
        obs_shape=(numbers,),
        obs_dtype="float32",
        action_kind="discrete" if discrete else "continuous",
        action_sizes=[3] if discrete else [],
        action_low=[] if discrete else [-1.0],
        action_high=[] if discrete else [1.0],
        action_start=[0] if discrete else [],
        agents=1,
    )


def check_arguments(
    counts: dict[str, int], costs: tuple[float, float], limits: tuple[float, float], split: str, execution: str
) -> None:
    """Raises: UsageError for the first argument that is out of range."""
    for name, value in counts.items():
        if value < 1:
            raise UsageError(f"Trading's {name} is {value}; it must be at least 1.")
    for name, cost in zip(("cost_bps", "borrow_rate"), costs, strict=True):
        if cost < 0:
            raise UsageError(f"Trading's {name} is {cost}; a cost cannot be negative.")
    for name, limit in zip(("max_short", "max_long"), limits, strict=True):
        if not 0 <= limit <= 1:
            raise UsageError(f"Trading's {name} is {limit}; position limits lie in [0, 1].")
    if split not in get_args(Part):
        raise UsageError(f"Trading has no split {split!r}; choose from {', '.join(get_args(Part))}.")
    if execution not in ("open", "close"):
        raise UsageError(f"Trading cannot execute at {execution!r}; choose open or close.")
