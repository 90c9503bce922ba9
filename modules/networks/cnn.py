"""Convolutional networks for small planes (`CNN`) and for frames (`NatureCNN`), with the channels first or last."""

import math

import torch
from torch import Tensor, nn

from modules.networks.base import Activation, FeedForward, activation_layer, hidden_layers, orthogonal
from modules.networks.preprocessing import ImageLayout, image_layout

_NATURE = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""Channels, kernel and stride of each convolution."""


class Convolutional(FeedForward):
    """Feed-forward network whose body takes planes `[B, C, H, W]`, whatever the layout of the observation.

    Args:
        body: maps planes to features.
        features: number of output features of `body`.
        scale: factor of the observation; None as in `Preprocessing`.
        layout: where the channels of the observation are.
    """

    def __init__(self, body: nn.Module, features: int, scale: float | None, layout: ImageLayout) -> None:
        super().__init__(body, features, scale)
        self.layout = layout

    def preprocess(self, obs: Tensor) -> Tensor:
        """Put the channels first, then cast and scale."""
        return self.scaled(self.layout.planes(obs), self.memory_format(obs))

    def memory_format(self, obs: Tensor) -> torch.memory_format:
        """Return the memory format of the planes."""
        return torch.contiguous_format


class CNN(Convolutional):
    """Convolutions that keep the size of small planes (a board, a grid), then fully connected layers.

    Args:
        obs_shape: `(C, H, W)`, `(H, W, C)`, `(H, W)`, or a stack `(frames, ...)` of such images.
        channels: number of channels of each convolution.
        kernel: side of every kernel, in cells.
        hidden: widths of the fully connected layers; if empty, the features are the last planes, flattened.
        activation: activation function after every layer.
        layer_norm: normalise the fully connected layers before their activation.
        scale: factor of the observation; null divides bytes by the largest value of the observation space.
        channels_last: whether the images are `(H, W, C)`; null infers it from the shape (`image_layout`).

    Raises:
        ValueError: If `obs_shape` is no image or its layout is ambiguous, or `channels` is empty.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        channels: tuple[int, ...] = (32, 64),
        kernel: int = 3,
        hidden: tuple[int, ...] = (256,),
        activation: Activation = "relu",
        layer_norm: bool = False,
        scale: float | None = None,
        channels_last: bool | None = None,
    ) -> None:
        layout = image_layout("CNN", obs_shape, channels_last)
        if not channels:
            raise ValueError("CNN: channels is empty; give at least one, for example (32, 64).")
        layers: list[nn.Module] = []
        inputs = layout.channels
        for outputs in channels:
            layers += [orthogonal(nn.Conv2d(inputs, outputs, kernel, padding="same")), activation_layer(activation)]
            inputs = outputs
        flat = inputs * layout.height * layout.width
        layers += [nn.Flatten(), *hidden_layers(flat, tuple(hidden), activation, layer_norm)]
        super().__init__(nn.Sequential(*layers), hidden[-1] if hidden else flat, scale, layout)


class NatureCNN(Convolutional):
    """Network of the Atari DQN for stacks of frames in bytes: three convolutions and one fully connected layer.

    Args:
        obs_shape: `(C, H, W)` (usually (4, 84, 84)), `(H, W, C)`, `(H, W)`, or a stack `(frames, ...)` of such images,
            of at least 36 pixels a side.
        features: width of the last layer.
        scale: factor of the observation; null divides bytes by the largest value of the observation space.
        channels_last: whether the images are `(H, W, C)`; null infers it from the shape (`image_layout`).

    Raises:
        ValueError: If `obs_shape` is no image or its layout is ambiguous, or the frames are too small.

    Source: Mnih et al. 2015, doi:10.1038/nature14236, Methods, "Model architecture"; orthogonal initialisation as
    in Huang et al. 2022, "The 37 implementation details of PPO".
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        features: int = 512,
        scale: float | None = None,
        channels_last: bool | None = None,
    ) -> None:
        layout = image_layout("NatureCNN", obs_shape, channels_last)
        inputs, sides = layout.channels, [layout.height, layout.width]
        layers: list[nn.Module] = []
        for outputs, kernel, stride in _NATURE:
            layers += [orthogonal(nn.Conv2d(inputs, outputs, kernel, stride)), nn.ReLU()]
            sides = [(side - kernel) // stride + 1 for side in sides]
            inputs = outputs
        if min(sides) < 1:
            raise ValueError(
                f"NatureCNN: frames of {layout.height} x {layout.width} pixels are under 36 pixels a side; use CNN for"
                " small planes."
            )
        layers += [nn.Flatten(), orthogonal(nn.Linear(inputs * math.prod(sides), features)), nn.ReLU()]
        super().__init__(nn.Sequential(*layers), features, scale, layout)

    def memory_format(self, obs: Tensor) -> torch.memory_format:
        """Return channels-last for training on a CPU, where it is faster; else contiguous."""
        learning = obs.device.type == "cpu" and torch.is_grad_enabled()
        return torch.channels_last if learning else torch.contiguous_format
