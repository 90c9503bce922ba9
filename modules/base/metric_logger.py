"""What training reports now and then: means of metrics and of episodes, read without waiting for the device."""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from datamodules.core.types import Scalars
from modules.base.episode_metrics import RunningMeans, TrainingEpisodes


class Reading:
    """Tensors on their way to the host; `values` waits for them, if it is called too early.

    Args:
        env_steps: when they were measured.
        tensors: to copy, of any device; what is done to them later does not matter.
    """

    def __init__(self, env_steps: int, *tensors: Tensor):
        self.env_steps = env_steps
        self._copies = [tensor.to("cpu", non_blocking=True, copy=True) for tensor in tensors]
        self._copied: torch.cuda.Event | None = None
        if any(tensor.is_cuda for tensor in tensors):
            self._copied = torch.cuda.Event()
            self._copied.record()

    @property
    def arrived(self) -> bool:
        """Whether `values` would not wait."""
        return self._copied is None or self._copied.query()

    def values(self) -> list[list[float]]:
        """The numbers of every tensor."""
        if self._copied is not None:
            self._copied.synchronize()
        return [copy.flatten().tolist() for copy in self._copies]


class TrainingLog:
    """Collects metrics and training episodes, and gives their means in two strokes.

    `begin` takes what there is and sends it to the host; `finished` gives what has arrived. A GPU has work between the
    two, so that nobody waits for it.
    """

    def __init__(self) -> None:
        self.means, self.episodes = RunningMeans(), TrainingEpisodes()
        self._begun: deque[tuple[Reading, list[str], list[str]]] = deque()

    def update(self, episodes: Scalars, metrics: Scalars | None) -> None:
        """Add one iteration; metrics are None if it only collected."""
        self.episodes.update(episodes)
        if metrics is not None:
            self.means.update(metrics)

    def begin(self, env_steps: int, values: Mapping[str, float | Tensor]) -> None:
        """Take the means since the last time, and values by tag as they are. Every rank calls this together."""
        taken = (self.means.take(), self.episodes.take())
        reading = Reading(env_steps, *taken, *(torch.as_tensor(value) for value in values.values()))
        self._begun.append((reading, list(self.means.names), list(values)))

    def finished(self, wait: bool) -> Iterator[tuple[dict[str, float], int]]:
        """Values by tag and the environment steps they belong to, oldest first.

        A metric that names its own group (`option/switch_rate`) keeps it; others are `train/`.

        Args:
            wait: for all that was begun; else only what has arrived is given.
        """
        while self._begun and (wait or self._begun[0][0].arrived):
            reading, names, tags = self._begun.popleft()
            means, totals, *rest = reading.values()
            named = zip(names, means, strict=False)
            values = {name if "/" in name else f"train/{name}": mean for name, mean in named}
            values |= {f"rollout/{name}_mean": mean for name, mean in self.episodes.means(totals).items()}
            yield values | {tag: value for tag, (value,) in zip(tags, rest, strict=True)}, reading.env_steps

    def remembered(self) -> dict[str, Any]:
        """State for a checkpoint, plain types; call it when nothing is begun."""
        return {"episodes": self.episodes.remembered(), "means": self.means.remembered()}

    def remember(self, state: dict[str, Any], device: torch.device) -> None:
        """Continue from `remembered`."""
        self.episodes.remember(state["episodes"], device)
        self.means.remember(state["means"], device)
