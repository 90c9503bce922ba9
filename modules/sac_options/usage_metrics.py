"""Usage, durations and terminations of options, counted on the device and logged under `option/`."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from datamodules.core.pytree import tree_leaves, tree_map
from datamodules.core.types import Obs, Rollout
from modules.optim.distributed import all_reduce_sum
from modules.sac_options.option_record import OptionRecord

COUNTS = ("steps", "going", "ended", "switched", "completed", "length")
"""Valid steps; those that begin no episode, and among them those where the option terminated by its own decision, and
those where the option changed; completed options; and the steps of these.
"""


class OptionStatistics:
    """Usage, durations and terminations of options since the last log, and the recent steps of one row.

    An option is completed when it terminated, reached its maximum duration, or the episode ended; its duration then
    counts.

    Args:
        options: K.
        max_duration: `[K]`, 0 for none: ending at it does not count as a termination.
        longest: durations from this on share one bin of the histogram that gives the quantiles.
        window: number of steps of row 0 kept in `recent` for a figure.
    """

    def __init__(self, options: int, max_duration: Tensor, longest: int = 1000, window: int = 512):
        self.options, self.max_duration, self.longest, self.window = options, max_duration, longest, window
        size = 2 * options + len(COUNTS) + longest + 1
        self.totals = torch.zeros(size, dtype=torch.float64, device=max_duration.device)
        self.carried = torch.zeros((), dtype=torch.int64, device=max_duration.device)
        self.recent: dict[str, Tensor] = {}

    def update(self, rollout: Rollout) -> None:
        """Count the steps of one rollout, and keep those of its first row."""
        executed = OptionRecord.of(rollout.extras)
        self.count(executed, rollout.episode_start, rollout.valid)
        obs = tree_map(lambda part: part[:-1], rollout.obs)
        self.keep(executed, rollout.episode_start, rollout.reward, obs)

    def count(self, executed: OptionRecord, episode_start: Tensor, valid: Tensor) -> None:
        """Count steps, columns `[T, B]`: options that acted, episode starts, valid steps."""
        age = executed.age * valid
        ran = torch.cat([self.carried.expand_as(age[:1]), age[:-1]])
        going, over = valid & ~episode_start, executed.started & (ran > 0)
        longest = self.max_duration[executed.previous]
        ended = going & executed.started & ~((ran >= longest) & (longest > 0))
        counts = [valid, going, ended, going & (executed.option != executed.previous), over, over * ran]
        shares = F.one_hot(executed.option, self.options).to(torch.float64)
        usage, selected = shares * valid.unsqueeze(-1), shares * (valid & executed.started).unsqueeze(-1)
        length = torch.zeros(self.longest + 1, dtype=torch.float64, device=valid.device)
        length.scatter_add_(0, ran.clamp(max=self.longest).flatten(), over.double().flatten())
        sums = torch.stack([count.sum().double() for count in counts])
        self.totals += torch.cat([usage.sum((0, 1)), selected.sum((0, 1)), sums, length])
        self.carried = age[-1].clone()

    def keep(self, executed: OptionRecord, episode_start: Tensor, reward: Tensor, obs: Obs) -> None:
        """Keep the steps of row 0: option, started, episode_start, reward and the flattened observation."""
        columns = {
            "option": executed.option,
            "started": executed.started,
            "episode_start": episode_start,
            "reward": reward,
        }
        row = {name: column[-self.window :, 0] for name, column in columns.items()}
        newest = [part[-self.window :, 0] for part in tree_leaves(obs)]
        row["obs"] = torch.cat([part.reshape(len(part), -1).float() for part in newest], -1)
        for name, new in row.items():
            old = self.recent.get(name, new[:0])
            self.recent[name] = torch.cat([old, new])[-self.window :]

    def log(self) -> dict[str, float]:
        """Return values by name, over all ranks, and reset; durations only if an option was completed."""
        totals, options = all_reduce_sum(self.totals).to("cpu", copy=True), self.options
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

    def export_state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, tensors only."""
        return {name: getattr(self, name).to("cpu", copy=True) for name in ("totals", "carried")}

    def import_state(self, state: dict[str, Any]) -> None:
        """Restore the state saved by `export_state`."""
        self.totals, self.carried = (state[name].to(self.totals.device, copy=True) for name in ("totals", "carried"))


RATES = {"term_rate": "ended", "switch_rate": "switched"}
"""Rates per step that begins no episode, and the counts they come from."""


def relative_entropy(shares: Tensor) -> float:
    """Return the entropy of shares that sum to 1, as a fraction of its maximum; 1 for a single option."""
    if len(shares) == 1:
        return 1.0
    return float(-torch.special.xlogy(shares, shares).sum() / torch.log(torch.tensor(float(len(shares)))))
