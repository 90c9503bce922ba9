"""Six options of a trader, written by hand: enter long or short, leave, follow a trend, scalp, wait.

An agent that learns when to use which takes them as its `scripted` options; the environment offers where each may begin
as `option_mask`. They are functions of the environment's flat observation, whose first entries are these:
"""

import torch
from torch import Tensor

from datamodules.trading.prices.features import NAMES

POSITION = ("side", "size", "profit", "duration")
"""Of the position: -1, 0 or 1; its weight at the close; log profit in ten percent; bars it is open, over 20."""

PORTFOLIO = ("drawdown", "churn")
"""Of the account: log equity below its peak, in ten percent; what was traded lately, a bar."""

INDEX = {name: place for place, name in enumerate((*POSITION, *PORTFOLIO, *NAMES))}
"""Where each number stands: position, portfolio, then the features of the latest bar."""

FLAT = 0.02
"""A weight below this is no position."""

TREND = 1.5
"""A trend worth following: mean close of 10 bars over that of 20, in percent."""


def seen(obs: Tensor, name: str) -> Tensor:
    """One number of every observation `[B, numbers]`."""
    return obs[:, INDEX[name]]


def ripening(age: Tensor, least: int, most: int, steepness: float) -> Tensor:
    """Probability of ending that grows with age: 0.8 sigmoid(10 steepness (progress - 1/2)), 1 from `most` on."""
    progress = (age - least) / (most - least)
    growing = 0.8 * torch.sigmoid(10 * steepness * (progress - 0.5))
    return torch.where(age >= most, 1.0, growing).to(torch.float32)


class TradingOption:
    """What the six have in common: a scale for the learned action, and durations.

    Args:
        action_scale: largest weight that the option takes.
        min_duration: fewest bars of the option.
        max_duration: most bars of the option.
    """

    uses_actor = True

    def __init__(self, action_scale: float, min_duration: int, max_duration: int):
        self.action_scale, self.min_duration, self.max_duration = action_scale, min_duration, max_duration

    def initiation(self, obs: Tensor) -> Tensor:
        """Whether it may start, bool `[B]`."""
        raise NotImplementedError

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """The weight to hold, `[B, 1]`."""
        return self.action_scale * actor_action

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Probability of ending, `[B]`."""
        raise NotImplementedError


class OpenLong(TradingOption):
    """From cash into a long position, unless the market has just run up; ends after 5 to 20 bars."""

    side = 1.0

    def __init__(self, action_scale: float = 0.8, min_duration: int = 5, max_duration: int = 20):
        super().__init__(action_scale, min_duration, max_duration)

    def initiation(self, obs: Tensor) -> Tensor:
        """In cash, and the relative strength below 65 of 100 (above 35 to go short)."""
        return (seen(obs, "size").abs() < FLAT) & (self.side * seen(obs, "rsi") < 0.3)

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """The learned size, on this side."""
        return self.side * self.action_scale * actor_action.abs()

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Likelier with age."""
        return ripening(age, self.min_duration, self.max_duration, 0.4)


class OpenShort(OpenLong):
    """From cash into a short position, unless the market has just fallen."""

    side = -1.0


class ClosePosition(TradingOption):
    """Into cash, from any position."""

    uses_actor = False

    def __init__(self, min_duration: int = 3, max_duration: int = 10):
        super().__init__(0.0, min_duration, max_duration)

    def initiation(self, obs: Tensor) -> Tensor:
        """There is a position."""
        return seen(obs, "size").abs() >= FLAT

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """Nothing held."""
        return torch.zeros_like(actor_action)

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """When it is done."""
        return torch.where(seen(obs, "size").abs() < FLAT / 2, 1.0, 0.02)


class TrendFollow(TradingOption):
    """With the trend of the mean closes of 10 and 20 bars, while it lasts."""

    def __init__(self, action_scale: float = 0.6, min_duration: int = 10, max_duration: int = 50):
        super().__init__(action_scale, min_duration, max_duration)

    def initiation(self, obs: Tensor) -> Tensor:
        """A trend above 1.5 %, up or down."""
        return seen(obs, "trend").abs() > TREND

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """The learned size, on the side of the trend."""
        return self.action_scale * seen(obs, "trend").sign().unsqueeze(1) * actor_action.abs()

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Likely when the trend has halved."""
        lasting = ripening(age, self.min_duration, self.max_duration, 0.3).clamp(max=0.15)
        return torch.where(seen(obs, "trend").abs() < TREND / 2, 0.85, lasting)


class Scalp(TradingOption):
    """A short long position after a fall; ends by itself once in cash."""

    def __init__(self, action_scale: float = 1.0, min_duration: int = 5, max_duration: int = 15):
        super().__init__(action_scale, min_duration, max_duration)

    def initiation(self, obs: Tensor) -> Tensor:
        """In cash, and the relative strength below 35 of 100."""
        return (seen(obs, "size").abs() < FLAT) & (seen(obs, "rsi") < -0.3)

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """The learned size, long."""
        return self.action_scale * actor_action.abs()

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """When nothing is held, and likelier with age."""
        aging = ripening(age, self.min_duration, self.max_duration, 0.6)
        return torch.where(seen(obs, "size").abs() < FLAT / 2, 1.0, aging)


class Wait(TradingOption):
    """Keeps what there is, and trades next to nothing; may begin anywhere."""

    uses_actor = False

    def __init__(self, min_duration: int = 5, max_duration: int = 30):
        super().__init__(0.0, min_duration, max_duration)

    def initiation(self, obs: Tensor) -> Tensor:
        """Always."""
        return torch.ones(len(obs), dtype=torch.bool, device=obs.device)

    def action(self, obs: Tensor, age: Tensor, actor_action: Tensor) -> Tensor:
        """The weight as it is."""
        return seen(obs, "size").unsqueeze(1).to(actor_action.dtype).expand_as(actor_action)

    def termination(self, obs: Tensor, age: Tensor) -> Tensor:
        """Likelier with age, and when a trend of 3 % calls."""
        aging = ripening(age, self.min_duration, self.max_duration, 0.5).clamp(max=0.5)
        return torch.where(seen(obs, "trend").abs() > 2 * TREND, 0.75, aging)


SIX = (OpenLong, OpenShort, ClosePosition, TrendFollow, Scalp, Wait)
"""In the order of `option_mask`."""
