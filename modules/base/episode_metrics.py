"""Training metrics and episode statistics, reduced exactly over ranks."""

import math
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from datamodules.core.types import EpisodeBatch, MetricVector
from modules.optim.distributed import all_reduce_mean


class MeanMetrics:
    """Means of named scalars over the iterations since the last log, kept on the device until then."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.sums: Tensor | None = None
        self.iterations = 0

    def update(self, metrics: MetricVector) -> None:
        """Add one iteration's scalars; new names, in a run resumed with other settings, start new means."""
        names = list(metrics.names)
        if names != self.names:
            self.names, self.sums, self.iterations = names, None, 0
        self.sums = metrics.values.clone() if self.sums is None else self.sums.add_(metrics.values)
        self.iterations += 1

    def pop(self) -> Tensor:
        """Return the means `[names]` over all ranks, on their device, and reset. Every rank calls this together."""
        if self.sums is None:
            return torch.zeros(0)
        means = all_reduce_mean(self.sums) / self.iterations
        self.sums, self.iterations = None, 0
        return means

    def export_state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, in plain types."""
        sums = None if self.sums is None else self.sums.tolist()
        return {"names": self.names, "sums": sums, "iterations": self.iterations}

    def import_state(self, state: dict[str, Any], device: torch.device) -> None:
        """Restore the state saved by `export_state`."""
        self.names, self.iterations = list(state["names"]), state["iterations"]
        self.sums = None if state["sums"] is None else torch.tensor(state["sums"], device=device)


class TrainingEpisodeStats(Metric):
    """Means over the training episodes finished since the last log, and over at least the last hundred.

    `update` adds the totals of one rollout, on the device. Logged totals are kept on the host in groups, newest last,
    so that a log with fewer new episodes includes earlier groups until it has enough.
    """

    full_state_update = False
    at_least = 100
    totals: Tensor

    def __init__(self) -> None:
        super().__init__(sync_on_compute=True)
        self.add_state("totals", torch.zeros(0, dtype=torch.float64), dist_reduce_fx="sum")
        self.names: list[str] = []
        self.groups: list[list[float]] = []

    def update(self, episodes: MetricVector) -> None:
        """Add the totals (`Rollout.episodes`) of one rollout."""
        self.names = list(episodes.names)
        self.totals = self.totals + episodes.values if self.totals.numel() else episodes.values.clone()

    def compute(self) -> Tensor:
        """Return the totals since the last reset, over all ranks, on their device."""
        return self.totals

    def pop(self) -> Tensor:
        """Return the totals of `compute` and reset. Every rank calls this together."""
        totals = self.compute().clone()
        self.reset()
        return totals

    def means(self, totals: list[float]) -> dict[str, float]:
        """Return means by name (`return`, `length`, the environment's episode keys), with `totals` as the newest group.

        Empty before the first episode ended.
        """
        if totals and totals[0]:
            self.groups.append(totals)
        while len(self.groups) > 1 and sum(group[0] for group in self.groups[1:]) >= self.at_least:
            del self.groups[0]
        count = sum(group[0] for group in self.groups)
        sums = [sum(group[i] for group in self.groups) for i in range(1, len(self.names))]
        return {name: total / count for name, total in zip(self.names[1:], sums, strict=True) if count}

    def export_state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, in plain types: names, groups, and totals not logged yet on this rank."""
        return {"names": self.names, "groups": self.groups, "totals": self.totals.tolist()}

    def import_state(self, state: dict[str, Any], device: torch.device) -> None:
        """Restore the state saved by `export_state`."""
        self.names, self.groups = list(state["names"]), [list(group) for group in state["groups"]]
        self.totals = torch.tensor(state["totals"], dtype=torch.float64, device=device)


class EvaluationStats(Metric):
    """Mean, standard deviation and 95 % confidence interval over whole evaluation episodes of all ranks.

    Attributes:
        is_complete: whether the last evaluation was completed on every rank.
    """

    full_state_update = False
    cut: Tensor
    returns: list[Tensor]
    lengths: list[Tensor]
    values: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        self.add_state("returns", [], dist_reduce_fx="cat")
        self.add_state("lengths", [], dist_reduce_fx="cat")
        self.add_state("values", [], dist_reduce_fx="cat")
        self.add_state("cut", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self.keys: list[str] = []
        self.is_complete = True

    def update(self, episodes: EpisodeBatch) -> None:
        """Add whole episodes; an empty batch marks an interrupted evaluation."""
        self.cut += not len(episodes.episode_return)
        self.keys = list(episodes.info)
        self.returns.append(episodes.episode_return)
        self.lengths.append(episodes.length.to(torch.float64))
        if self.keys:
            self.values.append(torch.stack([episodes.info[key] for key in self.keys], dim=1))

    def compute(self) -> dict[str, float]:
        """Return `return_mean`, `_std`, `_interval` (half-width), `length_mean`, `episodes`; mean and max of the rest.

        Empty if the evaluation was interrupted on any rank: the other ranks' episodes are a biased sample.
        """
        self.is_complete = not int(self.cut)
        if not self.is_complete:
            return {}
        returns, lengths = _joined(self.returns), _joined(self.lengths)
        count = returns.numel()
        std = float(returns.std()) if count > 1 else 0.0
        result = {
            "return_mean": float(returns.mean()),
            "return_std": std,
            "return_interval": 1.96 * std / math.sqrt(count),
            "length_mean": float(lengths.mean()),
            "episodes": float(count),
        }
        if self.keys:
            values = _joined(self.values)
            result |= {f"{key}_mean": float(values[:, i].mean()) for i, key in enumerate(self.keys)}
            result |= {f"{key}_max": float(values[:, i].max()) for i, key in enumerate(self.keys)}
        return result


def _joined(parts: list[Tensor] | Tensor) -> Tensor:
    return parts if isinstance(parts, Tensor) else torch.cat(parts)
