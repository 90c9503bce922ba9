"""Arithmetic of a trading account: gains of positions and costs of rebalancing, as pure functions of tensors.

Weights are fractions of the equity, from -1 (short) to 1; the rest is cash without interest. An agent that has observed
the close of bar t chooses a weight, which is held from the execution of t, usually the open of bar t + 1, to the
execution of t + 1. `gain` is the relative price change between the two.
"""

from typing import NamedTuple

import torch
from torch import Tensor

RUIN = 1e-6
"""Smallest factor of the equity in one step; an account below it is ruined."""


class Costs(NamedTuple):
    """Trading costs: `trade` per traded volume, `borrow` per short weight and bar."""

    trade: float
    borrow: float


class BarResult(NamedTuple):
    """Result of one bar: factor of the equity, traded fraction of it, cost of the trade, and cost of borrowing."""

    factor: Tensor
    traded: Tensor
    cost: Tensor


def drifted_weight(weight: Tensor, gain: Tensor) -> Tensor:
    """Return the weight after a gain of the price, before any trade: w (1 + g) / (1 + w g)."""
    return weight * (1 + gain) / (1 + weight * gain).clamp(min=RUIN)


def rebalance(weight: Tensor, before: Tensor, gain: Tensor, costs: Costs) -> BarResult:
    """Trade from the weight `before` to `weight`, and hold it over a gain.

    factor = max(1 + w g - trade |w - before| - borrow max(-w, 0), RUIN)
    """
    traded = (weight - before).abs()
    cost = costs.trade * traded + costs.borrow * (-weight).clamp(min=0)
    return BarResult((1 + weight * gain - cost).clamp(min=RUIN), traded, cost)


def account(weight: Tensor, gain: Tensor, costs: Costs) -> BarResult:
    """Compute a path of weights `[T, ...]` over gains `[T, ...]`, starting in cash; nothing changes after ruin."""
    before = torch.cat([torch.zeros_like(weight[:1]), drifted_weight(weight[:-1], gain[:-1])])
    path = rebalance(weight, before, gain, costs)
    alive = (torch.cat([torch.ones_like(path.factor[:1]), path.factor[:-1]]) > RUIN).cumprod(0).bool()
    zero = torch.zeros_like(path.traded)
    return BarResult(
        *(torch.where(alive, value, kept) for value, kept in zip(path, (zero + 1, zero, zero), strict=True))
    )
