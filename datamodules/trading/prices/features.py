"""Features known at the close of each bar: without information on later bars or the level of prices.

Every feature of bar t is a function of a fixed number of bars up to t, `WARMUP` at most; no scaler is fitted to the
whole series. Changing later bars leaves earlier features bit-equal.
"""

import numpy as np
from numpy.typing import NDArray

from datamodules.trading.prices.price_files import Numbers, Prices, trailing

WARMUP = 200
"""Bars before the first one whose features are complete."""

LIMIT = 5.0
"""Features are clipped to plus and minus this value."""

NAMES = (
    "return_1",
    "return_5",
    "return_20",
    "gap",
    "intraday",
    "range",
    "volume",
    "volatility_20",
    "volatility_60",
    "rsi",
    "stochastic",
    "bollinger",
    "trend",
    "above_50",
    "above_200",
)


def market_features(prices: Prices) -> NDArray[np.float32]:
    """Return features `[bars, len(NAMES)]`, in the order of `NAMES`; rows before `WARMUP` are zero.

    return_1, return_5, return_20: log returns in standard deviations over 60 bars.
    gap, intraday, range: log of open over the last close, close over open, high over low, in the same unit.
    volume: deviations of log volume from its mean over 60 bars.
    volatility_20: log of volatility over 20 bars relative to that over 60.   volatility_60: log of it, 0 at 1 % a bar.
    rsi: relative strength over 14 bars from -1 (falling only) to 1 (Wilder 1978, with plain means).
    stochastic: close within the range of 14 bars, from -1 to 1.
    bollinger: close minus its mean over 20 bars, in two standard deviations.
    trend: log of the mean close over 10 bars relative to 20, in percent.
    above_50, above_200: log of close relative to its mean over so many bars, in ten percent.
    """
    log_close = np.log(prices.close)
    returns = np.concatenate([[0.0], np.diff(log_close)])
    previous = np.concatenate([prices.open[:1], prices.close[:-1]])
    scale = np.maximum(trailing(returns, 60).std(-1), 1e-5)
    low, high = trailing(prices.low, 14).min(-1), trailing(prices.high, 14).max(-1)
    close_20, volume = trailing(prices.close, 20), trailing(np.log1p(prices.volume), 60)
    means = {length: trailing(prices.close, length).mean(-1) for length in (10, 50, 200)}
    columns = {
        "return_1": returns / scale,
        "return_5": trailing(returns, 5).sum(-1) / (scale * 5**0.5),
        "return_20": trailing(returns, 20).sum(-1) / (scale * 20**0.5),
        "gap": np.log(prices.open / previous) / scale,
        "intraday": np.log(prices.close / prices.open) / scale,
        "range": np.log(prices.high / prices.low) / scale,
        "volume": (volume[:, -1] - volume.mean(-1)) / np.maximum(volume.std(-1), 1e-3),
        "volatility_20": np.log(np.maximum(trailing(returns, 20).std(-1), 1e-5) / scale),
        "volatility_60": np.log(scale / 0.01),
        "rsi": _strength(returns),
        "stochastic": 2 * (prices.close - low) / np.maximum(high - low, 1e-9 * prices.close) - 1,
        "bollinger": (prices.close - close_20.mean(-1)) / (2 * np.maximum(close_20.std(-1), 1e-6 * prices.close)),
        "trend": 100 * np.log(means[10] / close_20.mean(-1)),
        "above_50": 10 * np.log(prices.close / means[50]),
        "above_200": 10 * np.log(prices.close / means[200]),
    }
    table = np.stack([columns[name] for name in NAMES], 1).clip(-LIMIT, LIMIT).astype(np.float32)
    table[:WARMUP] = 0
    return table


def _strength(returns: Numbers) -> Numbers:
    """Return (up - down) / (up + down), with the sums of rises and falls over 14 bars."""
    window = trailing(returns, 14)
    return window.sum(-1) / np.maximum(np.abs(window).sum(-1), 1e-9)
