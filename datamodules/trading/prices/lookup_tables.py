"""Market data of all symbols as tensors for lookup on the environment's device."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from datamodules.trading.prices.features import market_features
from datamodules.trading.prices.price_files import Prices


class Tables(NamedTuple):
    """Tensors `[symbols, bars, ...]`; entries without a preceding or following bar are undefined.

    features: float32, of the last `window` bars, latest first.   price: log of the price at which a decision trades.
    gain: relative change from that price to the next decision's.   close: log of the close.
    marked: relative change from the last decision's price to this close.
    """

    features: Tensor
    price: Tensor
    gain: Tensor
    close: Tensor
    marked: Tensor

    def to(self, device: torch.device) -> "Tables":
        """Return the tables on another device."""
        return Tables(*(table.to(device) for table in self))


def tables(prices: Sequence[Prices], *, window: int, lag: int) -> Tables:
    """Create tables on the host, float64 except for the features.

    Args:
        lag: 1 if a decision at a close trades at the next open, 0 if at the close itself.
    """
    features = np.stack([market_features(each) for each in prices])
    windows = np.concatenate([np.roll(features, shift, 1) for shift in range(window)], -1)
    close = np.log(np.stack([each.close for each in prices]))
    price = np.roll(np.log(np.stack([each.open for each in prices])), -1, 1) if lag else close
    gain, marked = np.expm1(np.roll(price, -1, 1) - price), np.expm1(close - np.roll(price, 1, 1))
    return Tables(*(torch.from_numpy(table) for table in (windows, price, gain, close, marked)))
