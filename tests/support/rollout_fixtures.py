"""Rollouts written by hand, of rows that count, for tests of what is stored and what is drawn."""

from typing import Any

import torch
from torch import Tensor

from datamodules.core.types import MetricVector, Rollout


class Writer:
    """Makes rollouts of B rows that go on from one another: obs and reward of step t are t, ends are as scheduled.

    Args:
        terminated, truncated: steps after which all rows end; the true last observation of step t is 1000 + t.
        stack: frames of an observation; 1 is a plain vector `[2]` of (t, column).
    """

    def __init__(
        self, columns: int = 2, terminated: tuple[int, ...] = (), truncated: tuple[int, ...] = (), stack: int = 1
    ):
        self.columns, self.terminated, self.truncated, self.stack = columns, terminated, truncated, stack
        self.invalid: tuple[int, ...] = ()
        self.t = 0

    def frame(self, t: int) -> Tensor:
        return torch.tensor([[float(t), float(column)] for column in range(self.columns)])

    def begins(self, t: int) -> bool:
        return t == 0 or t - 1 in self.terminated + self.truncated

    def obs(self, t: int) -> Tensor:
        if self.stack == 1:
            return self.frame(t)
        times = [t]
        while len(times) < self.stack:
            times.append(times[-1] if self.begins(times[-1]) else times[-1] - 1)
        return torch.stack([self.frame(time) for time in reversed(times)], 1)

    def masks(self, t: int) -> dict[str, Tensor]:
        return {"action_mask": torch.tensor([t % 2 == 0, t % 2 == 1]).repeat(self.columns, 1)}

    def rollout(self, steps: int) -> tuple[Rollout, dict[str, Tensor]]:
        times = range(self.t, self.t + steps)
        self.t += steps
        flags = (self.terminated, self.truncated, self.invalid)
        terminated, truncated, invalid = (self.rows([float(t in ends) for t in times]) > 0 for ends in flags)
        finals = [t for t in times if t in self.truncated and t not in self.terminated]
        final_obs = torch.stack([self.obs(1000 + t) for t in finals]) if finals else self.obs(0).unsqueeze(0)
        final_step = [t - times[0] for t in finals] or [-1]
        rollout = Rollout(
            obs=torch.stack([self.obs(t) for t in [*times, self.t]]),
            action=self.rows([float(t % 3) for t in times]).long(),
            reward=self.rows([float(t) for t in times]),
            terminated=terminated,
            truncated=truncated,
            valid=~invalid,
            episode_start=self.rows([float(self.begins(t)) for t in times]) > 0,
            final_obs=final_obs,
            final_step=self.rows([float(index) for index in final_step]).long(),
            state={},
            extras={
                "option": self.rows([float(t) for t in times]),
                "action_mask": torch.stack([self.masks(t)["action_mask"] for t in times]),
            },
            episodes=MetricVector(("count",), torch.zeros(1)),
            env_steps=int((~invalid).sum()),
            has_invalid_steps=bool(self.invalid),
        )
        return rollout, self.masks(self.t)

    def rows(self, values: list[float]) -> Tensor:
        return torch.tensor(values).unsqueeze(1).repeat(1, self.columns)


class PartsWriter(Writer):
    """The same rollouts with observations of two parts: a stack of images in bytes, and a plain vector.

    Args:
        only: name of a part, of which the observation then consists; None for both.
    """

    def __init__(self, *args: Any, only: str | None = None, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.only = only

    def rollout(self, steps: int) -> tuple[Rollout, dict[str, Tensor]]:
        rollout, masks = super().rollout(steps)
        obs, final_obs = (self.split(obs) for obs in (rollout.obs, rollout.final_obs))
        if self.only is not None:
            obs, final_obs = obs[self.only], final_obs[self.only]
        return rollout._replace(obs=obs, final_obs=final_obs), masks

    def split(self, obs: Tensor) -> dict[str, Tensor]:
        """Return the stacks as images of one pixel's height, and the newest frame as a vector."""
        newest = obs if self.stack == 1 else obs[:, :, -1]
        images = obs if self.stack > 1 else obs.unsqueeze(-2)
        return {"images": (images % 256).unsqueeze(-2).to(torch.uint8), "vector": newest}
