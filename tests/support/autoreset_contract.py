"""What holds of every environment that begins an episode in the step after the last one ended."""

from collections.abc import Iterator

import torch
from torch import Tensor

from datamodules.core.protocols import VectorEnv
from datamodules.core.types import VectorStep


def stepped(envs: VectorEnv, steps: int) -> Iterator[tuple[VectorStep, Tensor]]:
    """Push cart-poles to the right: each step, and where an episode had ended, just where it is a autoreset step."""
    envs.reset(0)
    ended = torch.zeros(envs.num_envs, dtype=torch.bool)
    for _ in range(steps):
        step = envs.step(torch.ones(envs.num_envs, dtype=torch.int64))
        assert torch.equal(step.valid, ~ended)
        assert torch.equal(step.reward, step.valid.float())
        yield step, ended
        ended = step.terminated | step.truncated
