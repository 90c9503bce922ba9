"""Synthetic markets whose attainable returns are known.

Bars open at the last close, so that a decision at a close that is executed at the next open loses nothing.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from datamodules.core.arguments import check_arguments
from datamodules.core.errors import ConfigurationError
from datamodules.trading.prices.price_files import Numbers, Prices

FIRST_DAY = np.datetime64("2000-01-03")


def random_walk(bars: int = 5000, seed: int = 0, drift: float = 0.0, volatility: float = 0.01) -> Numbers:
    """Return independent normal log returns; only the drift can be earned. Both are per bar."""
    return drift + volatility * np.random.default_rng(seed).standard_normal(bars)


def autoregressive(bars: int = 5000, seed: int = 0, phi: float = 0.3, volatility: float = 0.01) -> Numbers:
    """Return r_t = phi r_{t-1} + e_t, log returns of standard deviation `volatility`; the last return is predictive."""
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
    """Return a rising regime of low and a falling one of high volatility, each left with probability 1 - `stay`."""
    state = regime(bars, seed, stay)
    noise = np.random.default_rng([seed, 1]).standard_normal(bars)
    return np.where(state == 0, drift, -drift) + np.asarray(volatility)[state] * noise


def regime(bars: int, seed: int, stay: float = 0.98) -> NDArray[np.int64]:
    """Return the index of the regime of each bar of `regimes`, `[bars]`."""
    return np.cumsum(np.random.default_rng([seed, 0]).random(bars) > stay) % 2


def regime_settings(symbol: str, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return all arguments of `regimes`, defaults included; None for a market without regimes."""
    if symbol != "REGIMES":
        return None
    made = inspect.signature(regimes).bind(**settings)
    made.apply_defaults()
    return made.arguments


def known_regime(symbol: str, settings: Mapping[str, Any]) -> Tensor | None:
    """Return `regime` of the market of `symbol` and its settings, int64 `[bars]`; None for a market without regimes."""
    made = regime_settings(symbol, settings)
    return None if made is None else torch.from_numpy(regime(*(made[name] for name in ("bars", "seed", "stay"))))


MARKETS: dict[str, Callable[..., Numbers]] = {"WALK": random_walk, "AR1": autoregressive, "REGIMES": regimes}

RANGES = {"bars": (1, math.inf), "seed": (0, math.inf), "volatility": (0, math.inf), "phi": (-1, 1), "stay": (0, 1)}
"""Smallest and largest values of settings; of others, any number."""


def synthetic_prices(symbol: str, **settings: object) -> Prices:
    """Return the bars of the synthetic market `symbol`, with the settings of its generator.

    Raises: ConfigurationError for settings that the generator does not have, of another type, or out of range.
    """
    check_arguments(MARKETS[symbol], settings, symbol, "synthetic.")
    for name, value in settings.items():
        lowest, highest = RANGES.get(name, (-math.inf, math.inf))
        if not all(lowest <= number <= highest for number in np.ravel(np.asarray(value))):
            limit = f"at least {lowest}" if highest == math.inf else f"from {lowest} to {highest}"
            raise ConfigurationError(f"synthetic.{name} of {symbol} is {value}; choose {limit}.")
    returns = MARKETS[symbol](**settings)
    return prices_of(symbol, returns, seed=int(str(settings.get("seed", 0))))


def prices_of(symbol: str, returns: Numbers, seed: int = 0) -> Prices:
    """Return daily bars, Monday to Friday, whose closes have these log returns; extremes and volume are random."""
    generator = np.random.default_rng([seed, 2])
    close = 100 * np.exp(np.cumsum(returns))
    start = np.concatenate([[100.0], close[:-1]])
    reach = np.exp(np.abs(0.25 * np.std(returns) * generator.standard_normal((2, len(returns)))))
    high, low = np.maximum(start, close) * reach[0], np.minimum(start, close) / reach[1]
    volume = 1e6 * np.exp(0.3 * generator.standard_normal(len(returns)))
    time = np.busday_offset(FIRST_DAY, np.arange(len(returns))).astype("datetime64[s]")
    return Prices(symbol, time, start, high, low, close, volume)
