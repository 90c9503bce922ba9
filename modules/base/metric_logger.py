"""Logging of training metrics and episode means without waiting for the device."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from datamodules.core.types import MetricVector
from modules.base.episode_metrics import MeanMetrics, TrainingEpisodeStats


class AsyncHostCopy:
    """Asynchronous copy of tensors to the host; `values` waits for it.

    Args:
        env_steps: environment steps at the measurement.
        tensors: to copy, on any device; later changes to them have no effect.
    """

    def __init__(self, env_steps: int, *tensors: Tensor):
        self.env_steps = env_steps
        self._copies = [tensor.to("cpu", non_blocking=True, copy=True) for tensor in tensors]
        self._copied: torch.cuda.Event | None = None
        if any(tensor.is_cuda for tensor in tensors):
            self._copied = torch.cuda.Event()
            self._copied.record()

    @property
    def is_ready(self) -> bool:
        """Return whether `values` would return without waiting."""
        return self._copied is None or self._copied.query()

    def values(self) -> list[list[float]]:
        """Return the numbers of every tensor."""
        if self._copied is not None:
            self._copied.synchronize()
        return [copy.flatten().tolist() for copy in self._copies]


class MetricLogger:
    """Accumulates metrics and training episodes, and returns their means asynchronously.

    `start_transfer` copies the current means to the host; `completed` yields the copies that have arrived. The
    training loop goes on between the two calls and does not wait for the device.
    """

    def __init__(self) -> None:
        self.means, self.episodes = MeanMetrics(), TrainingEpisodeStats()
        self._transfers: deque[tuple[AsyncHostCopy, list[str], list[str]]] = deque()

    def update(self, episodes: MetricVector, metrics: MetricVector | None) -> None:
        """Add one iteration; metrics are None if it only collected."""
        self.episodes.update(episodes)
        if metrics is not None:
            self.means.update(metrics)

    def start_transfer(self, env_steps: int, values: Mapping[str, float | Tensor]) -> None:
        """Start copying the means since the last call, and the given values by tag. Every rank calls this together."""
        sums = (self.means.pop(), self.episodes.pop())
        transfer = AsyncHostCopy(env_steps, *sums, *(torch.as_tensor(value) for value in values.values()))
        self._transfers.append((transfer, list(self.means.names), list(values)))

    def completed(self, wait: bool) -> Iterator[tuple[dict[str, float], int]]:
        """Yield values by tag and the environment steps they belong to, oldest first.

        A metric with its own group (`option/switch_rate`) keeps it; others get the prefix `train/`.

        Args:
            wait: for all transfers; else only those that have arrived are yielded.
        """
        while self._transfers and (wait or self._transfers[0][0].is_ready):
            transfer, names, tags = self._transfers.popleft()
            means, totals, *rest = transfer.values()
            values = self.by_tag(names, means, totals)
            yield values | {tag: value for tag, (value,) in zip(tags, rest, strict=True)}, transfer.env_steps

    def by_tag(self, names: Sequence[str], means: list[float], totals: list[float]) -> dict[str, float]:
        """Return means by tag; `totals` are those of the episodes since the last log."""
        return self.tagged(names, means, self.episodes.means(totals))

    def by_agent(self, log: Mapping[str, float]) -> dict[str, Mapping[str, float]]:
        """Return the values of a log for every agent that is trained, by its name; a single one has the name ""."""
        return {"": log}

    def tagged(self, names: Sequence[str], means: list[float], episodes: Mapping[str, float]) -> dict[str, float]:
        """Return means of metrics and episodes by tag."""
        named = zip(names, means, strict=False)
        values = {name if "/" in name else f"train/{name}": mean for name, mean in named}
        return values | {f"rollout/{name}_mean": mean for name, mean in episodes.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint, in plain types; call it when no transfer is pending."""
        return {"episodes": self.episodes.export_state(), "means": self.means.export_state()}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Restore the state saved by `state_dict`."""
        self.episodes.import_state(state["episodes"], device)
        self.means.import_state(state["means"], device)
