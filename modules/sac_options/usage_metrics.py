"""What options do while they run, counted on the device and logged under `option/`."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.core.types import Rollout
from modules.optim.distributed import summed
from modules.sac_options.option_record import Executed

COUNTS = ("steps", "going", "ended", "switched", "completed", "length")
"""Valid steps; those that begin no episode, and among them those where the option ended by its own decision, and those
where another option took over; options that are over; and the steps that these ran."""


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
        self.carried = torch.zeros((), dtype=torch.int64, device=max_duration.device)
        self.recent: dict[str, Tensor] = {}

    def update(self, rollout: Rollout) -> None:
        """Count the steps of one rollout, and remember what its first row did."""
        executed = Executed.of(rollout.extras)
        self.count(executed, rollout.reset, rollout.valid)
        self.keep(executed, rollout.reset, rollout.reward, rollout.obs[:-1])

    def count(self, executed: Executed, reset: Tensor, valid: Tensor) -> None:
        """Count steps, columns `[T, B]`: who acted, where episodes begin, which steps count."""
        age = executed.age * valid
        ran = torch.cat([self.carried.expand_as(age[:1]), age[:-1]])
        going, over = valid & ~reset, executed.begun & (ran > 0)
        longest = self.max_duration[executed.previous]
        ended = going & executed.begun & ~((ran >= longest) & (longest > 0))
        counts = [valid, going, ended, going & (executed.option != executed.previous), over, over * ran]
        shares = F.one_hot(executed.option, self.options).to(torch.float64)
        usage, selected = shares * valid.unsqueeze(-1), shares * (valid & executed.begun).unsqueeze(-1)
        length = torch.zeros(self.longest + 1, dtype=torch.float64, device=valid.device)
        length.scatter_add_(0, ran.clamp(max=self.longest).flatten(), over.double().flatten())
        sums = torch.stack([count.sum().double() for count in counts])
        self.totals += torch.cat([usage.sum((0, 1)), selected.sum((0, 1)), sums, length])
        self.carried = age[-1].clone()

    def keep(self, executed: Executed, reset: Tensor, reward: Tensor, obs: Tensor) -> None:
        """Remember what row 0 did: option, begun, reset, reward and the flat observation it acted on."""
        columns = {"option": executed.option, "begun": executed.begun, "reset": reset, "reward": reward}
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
        return {name: getattr(self, name).to("cpu", copy=True) for name in ("totals", "carried")}

    def remember(self, state: dict[str, Any]) -> None:
        """Continue from `remembered`."""
        self.totals, self.carried = (state[name].to(self.totals.device, copy=True) for name in ("totals", "carried"))


RATES = {"term_rate": "ended", "switch_rate": "switched"}
"""What is divided by the steps that begin no episode."""


def relative_entropy(shares: Tensor) -> float:
    """Entropy of shares that sum to 1, as a part of the most it can be; 1 for a single option."""
    if len(shares) == 1:
        return 1.0
    return float(-torch.special.xlogy(shares, shares).sum() / torch.log(torch.tensor(float(len(shares)))))
