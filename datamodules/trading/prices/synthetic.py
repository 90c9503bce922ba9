"""Markets with a known answer: what can be earned in them, if anything, is known beforehand.

Bars open where the last one closed, so that a decision made at a close and executed at the next open misses nothing.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.core.errors import UsageError
from datamodules.trading.prices.price_files import Numbers, Prices

FIRST_DAY = np.datetime64("2000-01-03")


def random_walk(bars: int = 5000, seed: int = 0, drift: float = 0.0, volatility: float = 0.01) -> Numbers:
    """Independent normal log returns: nothing can be earned but the drift. Both are per bar."""
    return drift + volatility * np.random.default_rng(seed).standard_normal(bars)


def autoregressive(bars: int = 5000, seed: int = 0, phi: float = 0.3, volatility: float = 0.01) -> Numbers:
    """r_t = phi r_{t-1} + e_t, with log returns r of standard deviation `volatility`: the last return foretells."""
    noise = np.random.default_rng(seed).standard_normal(bars) * volatility * np.sqrt(1 - phi**2)
    returns = np.empty(bars)
    last = 0.0
    for bar, shock in enumerate(noise):
        returns[bar] = last = phi * last + shock
    return returns


def regimes(
    bars: int = 5000,
    seed: int = 0,
    drift: float = 0.001,
    volatility: tuple[float, float] = (0.008, 0.016),
    stay: float = 0.98,
) -> Numbers:
    """A calm regime that rises and a wild one that falls, each left with probability 1 - `stay` a bar."""
    state = regime(bars, seed, stay)
    noise = np.random.default_rng([seed, 1]).standard_normal(bars)
    return np.where(state == 0, drift, -drift) + np.asarray(volatility)[state] * noise


def regime(bars: int, seed: int, stay: float = 0.98) -> NDArray[np.int64]:
    """Which of the two regimes rules each bar of `regimes`, `[bars]`."""
    return np.cumsum(np.random.default_rng([seed, 0]).random(bars) > stay) % 2


def known_regime(symbol: str, settings: Mapping[str, Any]) -> Tensor | None:
    """`regime` of the market that `symbol` and its settings make, int64 `[bars]`; None for a market without regimes."""
    if symbol != "REGIMES":
        return None
    made = inspect.signature(regimes).bind(**settings)
    made.apply_defaults()
    return torch.from_numpy(regime(*(made.arguments[name] for name in ("bars", "seed", "stay"))))


MARKETS: dict[str, Callable[..., Numbers]] = {"WALK": random_walk, "AR1": autoregressive, "REGIMES": regimes}


def synthetic_prices(symbol: str, **settings: object) -> Prices:
    """Bars of the market `symbol`, from the settings of its generator.

    Raises: UsageError for settings that the generator does not have.
    """
    try:
        returns = MARKETS[symbol](**settings)
    except TypeError as error:
        raise UsageError(f"The market {symbol} cannot be made with synthetic {settings}: {error}.") from error
    return prices_of(symbol, returns, seed=int(str(settings.get("seed", 0))))


def prices_of(symbol: str, returns: Numbers, seed: int = 0) -> Prices:
    """Daily bars, Monday to Friday, whose closes have these log returns; extremes and volume are drawn."""
    generator = np.random.default_rng([seed, 2])
    close = 100 * np.exp(np.cumsum(returns))
    start = np.concatenate([[100.0], close[:-1]])
    reach = np.exp(np.abs(0.25 * np.std(returns) * generator.standard_normal((2, len(returns)))))
    high, low = np.maximum(start, close) * reach[0], np.minimum(start, close) / reach[1]
    volume = 1e6 * np.exp(0.3 * generator.standard_normal(len(returns)))
    time = np.busday_offset(FIRST_DAY, np.arange(len(returns))).astype("datetime64[s]")
    return Prices(symbol, time, start, high, low, close, volume)
