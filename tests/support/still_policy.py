"""A policy that always chooses action 0."""

from typing import Any

import torch

from datamodules.core.types import PolicyInput, PolicyOutput, State


class Still:
    """Always does nothing."""

    compilable = False

    def initial_state(self, batch: int) -> State:
        return {}

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        return torch.zeros(*shape)

    def act(self, inputs: PolicyInput, noise: Any = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        return PolicyOutput(torch.zeros(len(inputs.episode_start), dtype=torch.int64), {}), inputs.state
