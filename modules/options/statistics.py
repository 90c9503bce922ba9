"""What options do while they run, counted on the device and logged under `option/`."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from modules.ranks import summed

COUNTS = ("steps", "going", "ended", "switched", "completed", "length")
"""Valid steps; those that begin no episode, and among them those where the option ended by its own decision, and those
where another option took over; options that are over; and the steps that these ran."""


class Running(NamedTuple):
    """Which options ran in T steps of B rows; every column `[T, B]`.

    option, previous: now and one step earlier.   age: steps run, this one included.   begun: whether it begins here.
    reset: whether an episode begins here.   valid: whether the step counts.   ran: age one step earlier, 0 if none.
    """

    option: Tensor
    previous: Tensor
    age: Tensor
    begun: Tensor
    reset: Tensor
    valid: Tensor
    ran: Tensor


class OptionStatistics:
    """Shares, lengths and endings of options since the last log, and what one row did lately.

    An option is over when it ended, when it was forced to end, or when the episode ended; its length is then counted.

    Args:
        options: K.
        max_duration: `[K]`, 0 for none: ending there is no decision of the option's.
        longest: lengths from here on share one bin of the histogram that the quantiles are read from.
        window: steps of row 0 that `recent` keeps for a figure.
    """

    def __init__(self, options: int, max_duration: Tensor, longest: int = 1000, window: int = 512):
        self.options, self.max_duration, self.longest, self.window = options, max_duration, longest, window
        size = 2 * options + len(COUNTS) + longest + 1
        self.totals = torch.zeros(size, dtype=torch.float64, device=max_duration.device)
        self.counted = torch.ones((), dtype=torch.bool, device=max_duration.device)
        self.recent: dict[str, Tensor] = {}

    def update(self, running: Running) -> None:
        """Count the steps of one rollout."""
        valid, option = running.valid, running.option
        shares = F.one_hot(option, self.options).to(torch.float64)
        before = torch.cat([self.counted.expand_as(valid[:1]), valid[:-1]])
        going = valid & ~running.reset
        longest = self.max_duration[running.previous]
        forced = (running.ran >= longest) & (longest > 0)
        over = running.begun & before & (running.ran > 0)
        length = torch.zeros(self.longest + 1, dtype=torch.float64, device=valid.device)
        length.scatter_add_(0, running.ran.clamp(max=self.longest).flatten(), over.double().flatten())
        counts = [valid, going, going & running.begun & ~forced, going & (option != running.previous), over]
        sums = [*(count.sum().double() for count in counts), (over * running.ran).sum().double()]
        usage, selected = (shares * valid.unsqueeze(-1)), shares * (valid & running.begun).unsqueeze(-1)
        self.totals += torch.cat([usage.sum((0, 1)), selected.sum((0, 1)), torch.stack(sums), length])
        self.counted = valid[-1]

    def keep(self, running: Running, reward: Tensor, obs: Tensor) -> None:
        """Remember what row 0 did: option, begun, reset, reward and the flat observation it acted on."""
        columns = {"option": running.option, "begun": running.begun, "reset": running.reset, "reward": reward}
        row = {name: column[-self.window :, 0] for name, column in columns.items()}
        row["obs"] = obs[-self.window :, 0].flatten(1).float()
        for name, new in row.items():
            old = self.recent.get(name, new[:0])
            self.recent[name] = torch.cat([old, new])[-self.window :]

    def log(self) -> dict[str, float]:
        """Values by name, over all ranks, and begin anew; lengths only where an option was over."""
        totals, options = summed(self.totals).to("cpu", copy=True), self.options
        self.totals.zero_()
        usage, selected, rest = totals[:options], totals[options : 2 * options], totals[2 * options :]
        counts = dict(zip(COUNTS, rest[: len(COUNTS)].tolist(), strict=True))
        if not counts["steps"]:
            return {}
        usage, selected = usage / usage.sum(), selected / selected.sum().clamp(min=1)
        values = {f"usage_{option}": share for option, share in enumerate(usage.tolist())}
        values |= {f"select_{option}": share for option, share in enumerate(selected.tolist())}
        values |= {"usage_min": float(usage.min()), "usage_entropy": relative_entropy(usage)}
        values |= {name: counts[count] / max(counts["going"], 1) for name, count in RATES.items()}
        return values | self._lengths(counts, rest[len(COUNTS) :])

    def _lengths(self, counts: dict[str, float], histogram: Tensor) -> dict[str, float]:
        if not counts["completed"]:
            return {}
        share = histogram.cumsum(0) / histogram.sum()
        quantiles = {f"length_p{percent}": float((share < percent / 100).sum()) for percent in (50, 95)}
        return {"length_mean": counts["length"] / counts["completed"], **quantiles}

    def remembered(self) -> dict[str, Any]:
        """State for a checkpoint, tensors only."""
        return {name: getattr(self, name).to("cpu", copy=True) for name in ("totals", "counted")}

    def remember(self, state: dict[str, Any]) -> None:
        """Continue from `remembered`."""
        self.totals, self.counted = (state[name].to(self.totals.device, copy=True) for name in ("totals", "counted"))


RATES = {"term_rate": "ended", "switch_rate": "switched"}
"""What is divided by the steps that begin no episode."""


def relative_entropy(shares: Tensor) -> float:
    """Entropy of shares that sum to 1, as a part of the most it can be; 1 for a single option."""
    if len(shares) == 1:
        return 1.0
    return float(-torch.special.xlogy(shares, shares).sum() / torch.log(torch.tensor(float(len(shares)))))
