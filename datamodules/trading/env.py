"""Trading of one symbol by target weights, without lookahead.

At the close of bar t the agent observes bars up to t and chooses a weight; it is traded at the open of bar t + 1 and
held to the open of t + 2. The account's return up to that open is not part of the observation at the close of t + 1,
which is earlier: observations value the account at the close.
"""

from typing import Any, Literal, get_args

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec, State
from datamodules.trading.account import RUIN, Costs, drifted_weight, rebalance
from datamodules.trading.performance import LEAST_DEVIATION
from datamodules.trading.prices.features import LIMIT, NAMES, WARMUP
from datamodules.trading.prices.lookup_tables import Tables, tables
from datamodules.trading.prices.price_files import RealJumps
from datamodules.trading.prices.sources import load_prices
from datamodules.trading.prices.time_split import Part, split_days
from datamodules.trading.prices.trading_calendar import checked_bars_per_year
from datamodules.trading.rendering import RENDERED_BARS, draw_account
from datamodules.trading.scripted_options import DEFAULT_OPTIONS, PORTFOLIO, POSITION

OWN = ("weight", "log_equity", "rewarded", "known", "fee", "peak", "churn")
EPISODE_KEYS = ("drawdown", "traded", "cost", "held", "gained", "square", "steps")
"""Numbers of an account, float64, initially 0; `known` is the log equity before the last trade, `peak` its highest."""

OPTIONS = tuple(option() for option in DEFAULT_OPTIONS)
CHURN = 0.95
"""Decay factor per bar of the recent trading volume."""


class Trading:
    """Trading environment as a `TorchFuncEnv`; each row is an account that trades one symbol.

    Actions: the weight to hold, from -1 (short) to 1 (long), clipped to the position limits; `discrete`: 0 short, 1
    cash, 2 long. Reward: `reward_scale` times the change of log equity (see `datamodules.trading.account`). Rewards are
    float32, the account float64; the rounding error of a reward is added to the next one, so that an episode's rewards
    sum to its log equity within one rounding error. A ruined account terminates; the end of the data, or of
    `episode_bars`, truncates.

    Observations, float32 in [-5, 5], `[6 + 15 window]`: side, size, profit and duration of the position, drawdown and
    churn of the account (`datamodules.trading.scripted_options`), then the features of the last `window` bars, latest
    first (`datamodules.trading.prices.features`).

    Args:
        symbol, prices, synthetic: symbols, and the source of their bars
            (`datamodules.trading.prices.sources.load_prices`).
        split: train starts at a random bar and lasts `episode_bars`; val, test and all are one episode over all their
            bars, row i trading symbol i modulo their number.
        val_from, test_from: first days of validation and test; default: after 60 % and 80 % of the bars.
        embargo: bars left out before validation and before the test.
        fold, folds: index of a walk-forward fold, from 0, and their number; `val_from` and `test_from` then have no
            effect.
        episode_bars: length of a training episode; at most the available bars.
        window: bars whose features are observed.
        cost_bps: commission and slippage, in 1/10,000 of the traded volume.
        borrow_rate: yearly rate paid on short positions.
        max_long, max_short: largest weights on either side, in [0, 1].
        execution: at the next `open`, or at the observed `close`, which is optimistic.
        discrete: three actions instead of continuous weights.
        option_mask: report where each of the six options of `datamodules.trading.scripted_options` may start.
        reward_scale: factor of the log returns in rewards.
        bars_per_year: for annualised measures and costs; from the bars' time stamps by default
            (`datamodules.trading.prices.trading_calendar`), which must not contradict it.
        real_jumps: days whose jumps are not unadjusted splits, such as 2020-03-16, or `all`.
        price_format: settings for files that can be read in more than one way, such as `{dayfirst: true}`
            (`datamodules.trading.prices.parsing.price_format.PriceFormat`).

    Raises:
        ConfigurationError: if an argument is out of range, or the prices cannot be used.
    """

    noise_size = 2
    episode_stat_keys = ("log_return", "sharpe", "drawdown", "turnover", "cost", "exposure")
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
        price_format: dict[str, Any] | None = None,
    ) -> None:
        numbers = {"episode_bars": episode_bars, "window": window}
        numbers |= {} if bars_per_year is None else {"bars_per_year": bars_per_year}
        check_trading_arguments(numbers, (cost_bps, borrow_rate), (max_short, max_long), split, execution)
        self.discrete, self.masks, self.window, self.split = discrete, option_mask, window, split
        self.limits, self.reward_scale = (-max_short, max_long), reward_scale
        self.prices = load_prices(symbol, prices, synthetic, real_jumps, price_format)
        self.lag = lag = int(execution == "open")
        self.bars_per_year = checked_bars_per_year(bars_per_year, self.prices[0].time, prices or symbol)
        self.costs = Costs(cost_bps / 10_000, borrow_rate / self.bars_per_year)
        where = (val_from, test_from), (fold, folds)
        self.days = split_days(self.prices[0].time, *where, warmup=WARMUP + window - 1, embargo=embargo)
        self.first, last = self.days.of(split)
        steps = last - lag - self.first
        self.length = self.min_truncation_step = min(episode_bars, steps) if split == "train" else steps
        self.starts = steps - self.length + 1
        self.tables = {torch.device("cpu"): tables(self.prices, window=window, lag=lag)}
        self.spaces = spaces(len(POSITION) + len(PORTFOLIO) + window * len(NAMES), discrete)

    def tables_on(self, device: torch.device) -> Tables:
        """Return the market's tables on a device; they are copied once."""
        if device not in self.tables:
            self.tables[device] = self.tables[torch.device("cpu")].to(device)
        return self.tables[device]

    def initial(self, noise: Tensor) -> State:
        """Return accounts in cash, from uniforms `[B, 2]`: symbol and first bar; outside training all symbols."""
        rows = torch.arange(len(noise), device=noise.device)
        symbol = (noise[:, 0] * len(self.prices)).long() if self.split == "train" else rows % len(self.prices)
        bar = self.first + (noise[:, 1] * self.starts).long()
        state = {"symbol": symbol, "bar": bar, "end": bar + self.length, "opened": bar.clone()}
        return state | {name: torch.zeros_like(noise[:, 0], dtype=torch.float64) for name in OWN + EPISODE_KEYS}

    def transition(self, state: State, action: Tensor, noise: Tensor) -> tuple[State, Tensor, Tensor, Tensor]:
        """Trade to the chosen weight and hold it for a bar."""
        tables, bar, before = self.tables_on(noise.device), state["bar"], state["weight"]
        index = (state["symbol"], bar)
        weight = self.weight(action)
        past = tables.gain[state["symbol"], bar - 1]
        result = rebalance(weight, drifted_weight(before, past), tables.gain[index], self.costs)
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
        """Return the weights `[B]` of actions, within the limits."""
        chosen = action.to(torch.float64) - 1 if self.discrete else action[:, 0].to(torch.float64)
        return chosen.clamp(*self.limits)

    def observation(self, state: State) -> Tensor:
        """Return the observation at the close of the bar, without the next open that values the account."""
        tables, index = self.tables_on(state["bar"].device), (state["symbol"], state["bar"])
        weight, marked, opened = state["weight"], tables.marked[index], tables.price[state["symbol"], state["opened"]]
        factor = (1 + weight * marked - state["fee"]).clamp(min=RUIN)
        below = state["known"] + factor.log() - state["peak"]
        side = weight.sign()
        own = [
            side,
            drifted_weight(weight, marked),
            10 * side * (tables.close[index] - opened),
            side.abs() * (state["bar"] - state["opened"]) / 20,
            10 * below.clamp(max=0),
            state["churn"],
        ]
        return torch.cat([torch.stack(own, 1).clamp(-LIMIT, LIMIT).float(), tables.features[index]], 1)

    def info(self, state: State) -> dict[str, Tensor]:
        """Return measures of the episode so far, as defined by `datamodules.trading.performance.Performance`."""
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

    def render(self, state: State, row: int, mode: str) -> Tensor | str:
        """Render one row: `rgb_array`, uint8 `[400, 600, 3]`, the closes up to the bar, or `ansi`, the account."""
        symbol, bar, weight = int(state["symbol"][row]), int(state["bar"][row]), float(state["weight"][row])
        if mode == "ansi":
            return f"bar {bar}, weight {weight:+.2f}, log equity {float(state['log_equity'][row]):+.4f}"
        begin = max(0, bar + 1 - RENDERED_BARS)
        close = self.tables_on(state["bar"].device).close[symbol, begin : bar + 1]
        return draw_account(close.cpu(), self.first - begin, weight, float(state["log_equity"][row]))


def spaces(numbers: int, discrete: bool) -> SpaceSpec:
    """Return the spaces: one weight or one of three positions, and observations of this length."""
    return SpaceSpec(
        obs_shape=(numbers,),
        obs_dtype="float32",
        action_type="discrete" if discrete else "continuous",
        action_sizes=[3] if discrete else [],
        action_low=[] if discrete else [-1.0],
        action_high=[] if discrete else [1.0],
        action_start=[0] if discrete else [],
        num_agents=1,
    )


def check_trading_arguments(
    counts: dict[str, int], costs: tuple[float, float], limits: tuple[float, float], split: str, execution: str
) -> None:
    """Raise ConfigurationError for the first argument that is out of range."""
    for name, value in counts.items():
        if value < 1:
            raise ConfigurationError(f"Trading's {name} is {value}; it must be at least 1.")
    for name, cost in zip(("cost_bps", "borrow_rate"), costs, strict=True):
        if cost < 0:
            raise ConfigurationError(f"Trading's {name} is {cost}; a cost cannot be negative.")
    for name, limit in zip(("max_short", "max_long"), limits, strict=True):
        if not 0 <= limit <= 1:
            raise ConfigurationError(f"Trading's {name} is {limit}; position limits lie in [0, 1].")
    if split not in get_args(Part):
        raise ConfigurationError(f"Trading has no split {split!r}; choose from {', '.join(get_args(Part))}.")
    if execution not in ("open", "close"):
        raise ConfigurationError(f"Trading cannot execute at {execution!r}; choose open or close.")
