"""Twin critics: two Q-networks computed together."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from modules.networks.base import (
    Activation,
    Network,
    Obs,
    activation_layer,
    at_least_float32,
    extract_features,
    orthogonal,
    run_layers,
)
from modules.networks.preprocessing import Preprocessing


class Critic(Protocol):
    """Two independent estimates of Q(s, a).

    Bring your own: any `nn.Module` built as `MyCritic(obs_shape, action_dims, outputs, **your_arguments)`.
    """

    def __call__(self, obs: Obs, action: Tensor | None = None) -> Tensor:
        """Return estimates `[2, N, outputs]`, at least float32.

        Args:
            obs: `[N, *obs_shape]`.
            action: `[N, action_dims]` in [-1, 1]; None for discrete actions: one output per action, `action_dims` 0.
        """
        ...


class TwinLinear(nn.Module):
    """Two linear layers as one batched product, each with its own orthogonal initialisation.

    Args:
        inputs, outputs: widths of both.
        gain: of the orthogonal weights.
    """

    def __init__(self, inputs: int, outputs: int, gain: float) -> None:
        super().__init__()
        layers = [orthogonal(nn.Linear(inputs, outputs), gain) for _ in range(2)]
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers]).contiguous())
        self.bias = nn.Parameter(torch.zeros(2, 1, outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return outputs `[2, N, outputs]` of `[2, N, inputs]`, or of `[N, inputs]` given to both."""
        return torch.baddbmm(self.bias, x.expand(2, *x.shape[-2:]), self.weight)


class TwinMLP(Preprocessing):
    """Two fully connected critics of the flattened observation and the action.

    Args:
        obs_shape: shape of one observation, any number of dimensions.
        action_dims: number of dimensions of a continuous action; 0 for discrete actions, with one output each.
        outputs: number of outputs of each critic.
        hidden: widths of the layers.
        activation: activation function after every hidden layer.
        scale: factor of the observation; null divides bytes by the largest value of the observation space.

    Raises:
        ValueError: If `hidden` is empty.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        action_dims: int,
        outputs: int,
        hidden: tuple[int, ...] = (256, 256),
        activation: Activation = "relu",
        scale: float | None = None,
    ) -> None:
        super().__init__(scale)
        if not hidden:
            raise ValueError("TwinMLP: hidden is empty; give at least one width, for example (256, 256).")
        layers: list[nn.Module] = []
        for inputs, width in pairwise((math.prod(obs_shape) + action_dims, *hidden)):
            layers += [TwinLinear(inputs, width, math.sqrt(2.0)), activation_layer(activation)]
        self.layers = nn.Sequential(*layers, TwinLinear(hidden[-1], outputs, 1.0))

    def forward(self, obs: Tensor, action: Tensor | None = None) -> Tensor:
        """Return estimates `[2, N, outputs]`."""
        inputs = self.preprocess(obs).flatten(1).to(cast(TwinLinear, self.layers[-1]).bias.dtype)
        inputs = inputs if action is None else torch.cat([inputs, action], -1)
        return at_least_float32(run_layers(self.layers, inputs, (TwinLinear,)))


class TwinTorsoCritic(nn.Module):
    """Two critics on torsos of any kind, for images: features and action through one hidden layer each.

    Args:
        obs_shape: shape of one observation.
        action_dims: number of dimensions of a continuous action; 0 for discrete actions, with one output each.
        outputs: number of outputs of each critic.
        network: makes a torso from `obs_shape`; it must not be recurrent.
        hidden: width of the layer after the torso.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        action_dims: int,
        outputs: int,
        network: Callable[[tuple[int, ...]], nn.Module],
        hidden: int = 256,
    ) -> None:
        super().__init__()
        self.torsos = nn.ModuleList(network(obs_shape) for _ in range(2))
        features = cast(Network, self.torsos[0]).features
        self.layers = nn.Sequential(
            TwinLinear(features + action_dims, hidden, math.sqrt(2.0)), nn.ReLU(), TwinLinear(hidden, outputs, 1.0)
        )

    def forward(self, obs: Obs, action: Tensor | None = None) -> Tensor:
        """Return estimates `[2, N, outputs]`."""
        features = torch.stack([extract_features(torso, obs) for torso in self.torsos])
        if action is not None:
            features = torch.cat([features, action.expand(2, *action.shape)], -1)
        return at_least_float32(self.layers(features))
