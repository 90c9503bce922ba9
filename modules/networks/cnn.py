"""Convolutional networks for planes and frames, both `[C, H, W]`."""

import math

import torch
from torch import Tensor, nn

from modules.networks.base import Activation, Memoryless, State, activation_layer, hidden_layers, orthogonal

_NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel and stride of each convolution."""


class CNN(Memoryless):
    """Convolutions that keep the size of small planes (a board, a grid), then fully connected layers.

    Args:
        obs_shape: `(C, H, W)`.
        channels: of each convolution.
        kernel: side of every kernel, in cells.
        hidden: widths of the fully connected layers; if empty, the features are the last planes, flattened.
        activation: after every layer.
        layer_norm: normalise the fully connected layers before their activation.
        scale: multiplies the observation first; 1 suits binary planes, also as bytes; 1/255 suits pixels.

    Raises:
        ValueError: If `obs_shape` does not have three dimensions or `channels` is empty.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        channels: tuple[int, ...] = (32, 64),
        kernel: int = 3,
        hidden: tuple[int, ...] = (256,),
        activation: Activation = "relu",
        layer_norm: bool = False,
        scale: float = 1.0,
    ) -> None:
        inputs, height, width = _planes("CNN", obs_shape)
        if not channels:
            raise ValueError("CNN: channels is empty; give at least one, for example (32, 64).")
        layers: list[nn.Module] = []
        for outputs in channels:
            layers += [orthogonal(nn.Conv2d(inputs, outputs, kernel, padding="same")), activation_layer(activation)]
            inputs = outputs
        flat = inputs * height * width
        layers += [nn.Flatten(), *hidden_layers(flat, tuple(hidden), activation, layer_norm)]
        super().__init__(nn.Sequential(*layers), hidden[-1] if hidden else flat, scale)


class NatureCNN(Memoryless):
    """The network of the Atari papers, for stacks of frames in bytes: three convolutions and 512 features.

    Args:
        obs_shape: `(C, H, W)`, usually (4, 84, 84); at least 36 pixels a side.
        features: width of the last layer.
        scale: multiplies the observation; bytes arrive between 0 and 1. Nothing else may divide by 255.

    Raises:
        ValueError: If `obs_shape` does not have three dimensions or the frames are too small.

    Source: Mnih et al. 2015, doi:10.1038/nature14236, Methods, "Model architecture"; orthogonal initialisation as in
    Huang et al. 2022, "The 37 implementation details of PPO".
    """

    def __init__(self, obs_shape: tuple[int, ...], features: int = 512, scale: float = 1.0 / 255.0) -> None:
        inputs, *sides = _planes("NatureCNN", obs_shape)
        layers: list[nn.Module] = []
        for outputs, kernel, stride in _NATURE:
            layers += [orthogonal(nn.Conv2d(inputs, outputs, kernel, stride)), nn.ReLU()]
            sides = [(side - kernel) // stride + 1 for side in sides]
            inputs = outputs
        if min(sides) < 1:
            raise ValueError(f"NatureCNN: frames of {obs_shape} are under 36 pixels a side; use CNN for small planes.")
        layers += [nn.Flatten(), orthogonal(nn.Linear(inputs * math.prod(sides), features)), nn.ReLU()]
        super().__init__(nn.Sequential(*layers), features, scale)

    def forward(self, obs: Tensor, state: State, reset: Tensor) -> tuple[Tensor, State]:
        """As every memoryless network's; on a CPU frames to learn from are laid out with the channels last."""
        if obs.device.type == "cpu" and torch.is_grad_enabled():
            obs = obs.to(next(self.parameters()).dtype, memory_format=torch.channels_last)
        return super().forward(obs, state, reset)


def _planes(network: str, obs_shape: tuple[int, ...]) -> tuple[int, int, int]:
    if len(obs_shape) != 3:
        raise ValueError(f"{network}: the observation's shape is {obs_shape}, not (C, H, W); use MLP, or planes.")
    channels, height, width = obs_shape
    return channels, height, width
