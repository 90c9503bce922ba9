"""Collecting from a worker pool: one half of the rows steps while the actor decides for the other."""

from typing import Any, cast

import torch
from torch import Tensor

from datamodules.collect import Collector, Live
from datamodules.nested import mapped
from datamodules.pool import PoolEnv


class HalvedCollector(Collector):
    """A Collector that keeps a worker pool and the actor busy at the same time.

    Every action still comes from the newest observation of its rows and the weights as they are: nothing is stale, and
    when a rollout ends no step is under way.
    """

    groups = 2

    def roll(self, live: Live, noise: Tensor, env_noise: Tensor | None) -> tuple[Live, Tensor]:
        """T steps into storage, half by half: what is live afterwards, and the totals of the episodes that ended."""
        self.begin(live)
        halves = cast(PoolEnv, self.envs).halves
        lives = [_rows(live, rows) for rows in halves]
        for t in range(self.horizon):
            for half, rows in enumerate(halves):
                if t:
                    lives[half] = self._receive(half, rows, t - 1, lives[half])
                lives[half] = self._send(half, rows, t, lives[half], noise[t, rows])
        lives = [self._receive(half, rows, self.horizon - 1, lives[half]) for half, rows in enumerate(halves)]
        return self.finish(_joined(lives))

    def _send(self, half: int, rows: slice, t: int, live: Live, noise: Tensor) -> Live:
        decision, actor = self.decide(live, noise, _rows(self.row(t), rows), half)
        cast(PoolEnv, self.envs).send(half, decision.action)
        return live._replace(actor=actor)

    def _receive(self, half: int, rows: slice, t: int, live: Live) -> Live:
        step = cast(PoolEnv, self.envs).receive(half)
        row = _rows(self.row(t), rows)
        self.keep_obs(self.steps[t], step, first_row=rows.start)
        masks, reset = self.record(step, row)
        return live._replace(obs=row.obs, masks=masks, reset=reset)


def _rows(value: Any, rows: slice) -> Any:
    """The rows of every tensor in nested tuples and dictionaries."""
    return mapped(lambda tensor: tensor[rows], value)


def _joined(lives: list[Live]) -> Live:
    """Halves put together again."""

    def join(*parts: Any) -> Any:
        if isinstance(parts[0], dict):
            return {name: join(*(part[name] for part in parts)) for name in parts[0]}
        return torch.cat(parts)

    return Live(*(join(*leaves) for leaves in zip(*lives, strict=True)))
