"""The arithmetic of an account: what holding pays, what rebalancing costs. Pure functions of tensors of one shape.

Weights are shares of the equity, from -1 (short) to 1; the rest is cash that earns nothing. Time runs like this: an
agent that has seen the close of bar t chooses a weight, which is in force from the execution of t, usually the open of
bar t + 1, to the execution of t + 1. `gain` is the relative price change between the two.
"""

from typing import NamedTuple

import torch
from torch import Tensor

RUIN = 1e-6
"""An account that keeps less than this part of itself in one step is gone."""


class Costs(NamedTuple):
    """What trading costs: `trade` is a part of what is bought or sold, `borrow` a part of a short weight, every bar."""

    trade: float
    borrow: float


class Held(NamedTuple):
    """What one bar did: the factor of the equity, the part of it that was traded, and what trade and loan cost."""

    factor: Tensor
    traded: Tensor
    cost: Tensor


def drifted(weight: Tensor, gain: Tensor) -> Tensor:
    """What a weight has become after a gain of the price, before any trade: w (1 + g) / (1 + w g)."""
    return weight * (1 + gain) / (1 + weight * gain).clamp(min=RUIN)


def held(weight: Tensor, before: Tensor, gain: Tensor, costs: Costs) -> Held:
    """Trade from the weight `before` to `weight`, and hold it over a gain.

    factor = max(1 + w g - trade |w - before| - borrow max(-w, 0), RUIN)
    """
    traded = (weight - before).abs()
    cost = costs.trade * traded + costs.borrow * (-weight).clamp(min=0)
    return Held((1 + weight * gain - cost).clamp(min=RUIN), traded, cost)


def account(weight: Tensor, gain: Tensor, costs: Costs) -> Held:
    """A whole path of weights `[T, ...]` over gains `[T, ...]`, from cash; nothing happens after ruin."""
    before = torch.cat([torch.zeros_like(weight[:1]), drifted(weight[:-1], gain[:-1])])
    path = held(weight, before, gain, costs)
    alive = (torch.cat([torch.ones_like(path.factor[:1]), path.factor[:-1]]) > RUIN).cumprod(0).bool()
    zero = torch.zeros_like(path.traded)
    return Held(*(torch.where(alive, value, kept) for value, kept in zip(path, (zero + 1, zero, zero), strict=True)))
