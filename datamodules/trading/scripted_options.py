"""Scripted options of a trader: enter long or short, close, follow a trend, scalp, wait; hold a constant weight.

An agent learns when to select each; the environment reports where each of the first six may start as `option_mask`.
They are functions of the environment's flat observation, which begins with the following numbers.
"""

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.trading.prices.features import NAMES

POSITION = ("side", "size", "profit", "duration")
"""Of the position: -1, 0 or 1; its weight at the close; log profit in ten percent; duration in bars, over 20."""

PORTFOLIO = ("drawdown", "churn")
"""Of the account: log equity below its peak, in ten percent; recent trading volume per bar."""

INDEX = {name: place for place, name in enumerate((*POSITION, *PORTFOLIO, *NAMES))}
"""Index of each number: position, account, then the features of the latest bar."""

FLAT = 0.02
"""Weights below this are no position."""

TREND = 1.5
"""Smallest trend to follow: mean close of 10 bars over that of 20, in percent."""


def feature(obs: Tensor, name: str) -> Tensor:
    """Return one number of every observation `[B, numbers]`."""
    return obs[:, INDEX[name]]


def termination_ramp(age: Tensor, least: int, most: int, steepness: float) -> Tensor:
    """Return a termination probability increasing with age: 0.8 sigmoid(10 steepness (progress - 1/2)), then 1."""
    progress = (age - least) / (most - least)
    growing = 0.8 * torch.sigmoid(10 * steepness * (progress - 0.5))
    return torch.where(age >= most, 1.0, growing).to(torch.float32)


class TradingOption:
    """Base class of the six options: the scale of the learned action, and durations.

    Args:
        action_scale: largest weight of the option.
        min_duration: minimum duration in bars.
        max_duration: maximum duration in bars.
    """

    uses_actor = True

    def __init__(self, action_scale: float, min_duration: int, max_duration: int):
        self.action_scale, self.min_duration, self.max_duration = action_scale, min_duration, max_duration

    def initiation(self, obs: Tensor) -> Tensor:
        """Return whether the option may start, bool `[B]`."""
        raise NotImplementedError

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """Return the weight to hold, `[B, 1]`."""
        return self.action_scale * actor_action

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Return the termination probability, `[B]`."""
        raise NotImplementedError


class OpenLong(TradingOption):
    """Option that opens a long position from cash, unless the market has just risen; ends after 5 to 20 bars."""

    side = 1.0

    def __init__(self, action_scale: float = 0.8, min_duration: int = 5, max_duration: int = 20):
        super().__init__(action_scale, min_duration, max_duration)

    def initiation(self, obs: Tensor) -> Tensor:
        """Return True in cash if the relative strength is below 65 of 100 (above 35 for a short position)."""
        return (feature(obs, "size").abs() < FLAT) & (self.side * feature(obs, "rsi") < 0.3)

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """Return the learned size with the option's sign."""
        return self.side * self.action_scale * actor_action.abs()

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Return a probability that grows with age."""
        return termination_ramp(age, self.min_duration, self.max_duration, 0.4)


class OpenShort(OpenLong):
    """Option that opens a short position from cash, unless the market has just fallen."""

    side = -1.0


class ClosePosition(TradingOption):
    """Option that closes any position."""

    uses_actor = False

    def __init__(self, min_duration: int = 3, max_duration: int = 10):
        super().__init__(0.0, min_duration, max_duration)

    def initiation(self, obs: Tensor) -> Tensor:
        """Return whether there is a position."""
        return feature(obs, "size").abs() >= FLAT

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """Return a weight of zero."""
        return torch.zeros_like(actor_action)

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Return 1 without a position, else 0.02."""
        return torch.where(feature(obs, "size").abs() < FLAT / 2, 1.0, 0.02)


class TrendFollow(TradingOption):
    """Option that follows the trend of the mean closes of 10 and 20 bars."""

    def __init__(self, action_scale: float = 0.6, min_duration: int = 10, max_duration: int = 50):
        super().__init__(action_scale, min_duration, max_duration)

    def initiation(self, obs: Tensor) -> Tensor:
        """Return whether the trend is above 1.5 %, up or down."""
        return feature(obs, "trend").abs() > TREND

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """Return the learned size with the sign of the trend."""
        return self.action_scale * feature(obs, "trend").sign().unsqueeze(1) * actor_action.abs()

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Return a high probability once the trend has halved."""
        lasting = termination_ramp(age, self.min_duration, self.max_duration, 0.3).clamp(max=0.15)
        return torch.where(feature(obs, "trend").abs() < TREND / 2, 0.85, lasting)


class Scalp(TradingOption):
    """Option that takes a brief long position after a fall; ends once in cash."""

    def __init__(self, action_scale: float = 1.0, min_duration: int = 5, max_duration: int = 15):
        super().__init__(action_scale, min_duration, max_duration)

    def initiation(self, obs: Tensor) -> Tensor:
        """Return True in cash if the relative strength is below 35 of 100."""
        return (feature(obs, "size").abs() < FLAT) & (feature(obs, "rsi") < -0.3)

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """Return the learned size, long."""
        return self.action_scale * actor_action.abs()

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Return 1 without a position, else a probability that grows with age."""
        aging = termination_ramp(age, self.min_duration, self.max_duration, 0.6)
        return torch.where(feature(obs, "size").abs() < FLAT / 2, 1.0, aging)


class Wait(TradingOption):
    """Option that keeps the position with almost no trades; may start anywhere."""

    uses_actor = False

    def __init__(self, min_duration: int = 5, max_duration: int = 30):
        super().__init__(0.0, min_duration, max_duration)

    def initiation(self, obs: Tensor) -> Tensor:
        """Return True."""
        return torch.ones(obs.shape[0], dtype=torch.bool, device=obs.device)

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """Return the current weight."""
        return feature(obs, "size").unsqueeze(1).to(actor_action.dtype).expand_as(actor_action)

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Return a probability that grows with age and with a trend of 3 %."""
        aging = termination_ramp(age, self.min_duration, self.max_duration, 0.5).clamp(max=0.5)
        return torch.where(feature(obs, "trend").abs() > 2 * TREND, 0.75, aging)


class HoldWeight(TradingOption):
    """Option that holds a constant weight, whatever the actor does; may start anywhere.

    Several of them make the choice of the option the position: long, cash and short.

    Args:
        weight: the weight to hold, from -1 (short) to 1 (long).
        min_duration: bars after which the controller chooses again.
    """

    uses_actor = False

    def __init__(self, weight: float, min_duration: int = 5):
        if not -1 <= weight <= 1:
            raise ConfigurationError(f"HoldWeight: weight is {weight}; it must be between -1 and 1.")
        super().__init__(weight, min_duration, 0)

    def initiation(self, obs: Tensor) -> Tensor:
        """Return True."""
        return torch.ones(obs.shape[0], dtype=torch.bool, device=obs.device)

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """Return the constant weight."""
        return torch.full_like(actor_action, self.action_scale)

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Return 1: the option ends after its minimum duration, and may be chosen again."""
        return torch.ones(obs.shape[0], device=obs.device)


DEFAULT_OPTIONS = (OpenLong, OpenShort, ClosePosition, TrendFollow, Scalp, Wait)
"""The options in the order of `option_mask`."""
