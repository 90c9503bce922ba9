"""Networks whose outputs depend on buffers and on the mode, for tests."""

from typing import Any

import torch
from torch import Tensor, nn

from modules.networks.base import State


class Normalizing(nn.Module):
    """A feed-forward torso with BatchNorm, dropout, a running maximum outside the state dict, and a count of calls."""

    features = 16
    largest: Tensor
    calls: Tensor

    def __init__(self, obs_shape: tuple[int, ...], dropout: float = 0.0):
        super().__init__()
        inputs = torch.Size(obs_shape).numel()
        self.body = nn.Sequential(nn.Linear(inputs, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(dropout))
        self.register_buffer("largest", torch.ones(inputs), persistent=False)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.modes: list[bool] = []

    def initial_state(self, batch: int) -> State:
        return {}

    def forward(self, obs: Tensor, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        obs = obs.flatten(1).float()
        self.modes.append(self.training)
        if self.training:
            self.largest.copy_(torch.maximum(self.largest, obs.abs().amax(0)))
            self.calls.add_(1)
        return self.body(obs / self.largest), state


def tensors_of(network: Any) -> dict[str, Tensor]:
    """Copies of all parameters and buffers."""
    return {name: value.detach().clone() for name, value in (*network.named_parameters(), *network.named_buffers())}
