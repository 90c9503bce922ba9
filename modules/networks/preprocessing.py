"""Preprocessing of observations, the same in every network: cast to the weights, scale, put the channels first."""

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)

BYTE = 255
"""What bytes are divided by where the observation space does not say more."""

_CHANNELS = (1, 3, 4)
"""How many channels an image with the channels last can have without saying so: grey, RGB, RGBA or four grey frames."""


class Preprocessing(nn.Module):
    """A network that casts and scales its observations by itself; frames stay stored as they came.

    Args:
        scale: multiplies the observation. None divides bytes by the largest value that the observation space allows
            (`set_obs_scale_`; 255 until that is called), and leaves numbers that the space does not bound as they are.
    """

    def __init__(self, scale: float | None) -> None:
        super().__init__()
        self.scale = scale

    def preprocess(self, obs: Tensor) -> Tensor:
        """Scale observations `[..., *obs_shape]`; whole numbers are cast to the weights first."""
        return self.scaled(obs, torch.preserve_format)

    def scaled(self, obs: Tensor, memory_format: torch.memory_format) -> Tensor:
        """Cast whole numbers, lay out in memory and scale."""
        scale = self.scale
        if scale is None:
            scale = 1.0 / BYTE if obs.dtype == torch.uint8 else 1.0
        if not obs.is_floating_point():
            obs = obs.to(next(self.parameters()).dtype, memory_format=memory_format)
        elif memory_format is not torch.preserve_format:
            obs = obs.to(obs.dtype, memory_format=memory_format)
        return obs if scale == 1.0 else obs * scale


def set_obs_scale_(module: Module, scale: float) -> Module:
    """Set the scale of every network in `module` that was not given one. Returns the module."""
    for part in module.modules():
        if isinstance(part, Preprocessing) and part.scale is None:
            part.scale = scale
    return module


class ImageLayout(NamedTuple):
    """Where the channels of an observation are; `planes` puts them first."""

    channels: int
    height: int
    width: int
    channels_last: bool

    def planes(self, obs: Tensor) -> Tensor:
        """Planes `[B, channels, height, width]` of observations `[B, *obs_shape]`, without copying more than needed."""
        if self.channels_last:
            obs = obs.movedim(-1, -3)
        return obs.reshape(len(obs), *self[:3]) if obs.dim() != 4 else obs


def image_layout(network: str, obs_shape: tuple[int, ...], channels_last: bool | None = None) -> ImageLayout:
    """Find the channels of an image `(H, W)`, `(C, H, W)` or `(H, W, C)`, or of a stack of images `(frames, ...)`.

    Every frame of a stack has channels of its own. An image is read with the channels last if its last dimension is 1,
    3 or 4 and smaller than the sides, and with the channels first if these are the smallest dimension or the sides are
    equal.

    Args:
        network: the name of who asks, for messages.
        channels_last: where the channels are; None decides by the shape.

    Raises:
        ValueError: If the observation is no image, or its shape does not tell where the channels are.
    """
    if not 2 <= len(obs_shape) <= 4:
        raise ValueError(
            f"{network}: the observation's shape is {obs_shape}, not (C, H, W), (H, W, C), (H, W) or a stack of these;"
            " use MLP, or show images."
        )
    if len(obs_shape) == 2:
        return ImageLayout(1, *obs_shape, channels_last=False)
    frames, image = (1, obs_shape) if len(obs_shape) == 3 else (obs_shape[0], obs_shape[1:])
    last = _has_channels_last(*image) if channels_last is None else channels_last
    if last is None:
        raise ValueError(
            f"{network}: the observation's shape {obs_shape} does not tell whether the channels are its last dimension"
            f" or come before height and width: set channels_last of {network} to true or false."
        )
    first, middle, end = image
    sides = (first, middle) if last else (middle, end)
    return ImageLayout(frames * (end if last else first), *sides, channels_last=last)


def _has_channels_last(first: int, middle: int, last: int) -> bool | None:
    """Tell where the channels of `(first, middle, last)` are; None where both readings make sense, or neither."""
    if last in _CHANNELS and last < min(first, middle) and (first not in _CHANNELS or first == middle):
        return True
    if middle == last != first or (first < min(middle, last) and last not in _CHANNELS):
        return False
    return None
