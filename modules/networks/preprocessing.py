"""Preprocessing of observations in every network: cast to the weights' dtype, scale, put the channels first."""

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

Module = TypeVar("Module", bound=nn.Module)

BYTE = 255
"""Divisor of bytes whose observation space gives no bound."""

_CHANNELS = (1, 3, 4)
"""Numbers of channels accepted as a last dimension without `channels_last`: grey, RGB, RGBA or four grey frames."""


class Preprocessing(nn.Module):
    """Base of networks that cast and scale observations themselves; buffers store them unchanged.

    Args:
        scale: factor of the observation. None divides bytes by the largest value of the observation space
            (`set_obs_scale_`; 255 before it is called), and leaves values without bound unchanged.
    """

    def __init__(self, scale: float | None) -> None:
        super().__init__()
        self.scale = scale

    def preprocess(self, obs: Tensor) -> Tensor:
        """Return observations `[..., *obs_shape]` scaled; integers are cast to the weights' dtype first."""
        return self.scaled(obs, torch.preserve_format)

    def scaled(self, obs: Tensor, memory_format: torch.memory_format) -> Tensor:
        """Return `obs` cast if integer, in the given memory format, and scaled."""
        scale = self.scale
        if scale is None:
            scale = 1.0 / BYTE if obs.dtype == torch.uint8 else 1.0
        if not obs.is_floating_point():
            obs = obs.to(next(self.parameters()).dtype, memory_format=memory_format)
        elif memory_format is not torch.preserve_format:
            obs = obs.to(obs.dtype, memory_format=memory_format)
        return obs if scale == 1.0 else obs * scale


def set_obs_scale_(module: Module, scale: float) -> Module:
    """Set the scale of every network in `module` that was given none; return the module."""
    for part in module.modules():
        if isinstance(part, Preprocessing) and part.scale is None:
            part.scale = scale
    return module


class ImageLayout(NamedTuple):
    """Position of the channels in an observation; `planes` puts them first."""

    channels: int
    height: int
    width: int
    channels_last: bool

    def planes(self, obs: Tensor) -> Tensor:
        """Return planes `[B, channels, height, width]` of observations `[B, *obs_shape]`, as a view if possible."""
        if self.channels_last:
            obs = obs.movedim(-1, -3)
        return obs.reshape(obs.shape[0], *self[:3]) if obs.dim() != 4 else obs


def image_layout(network: str, obs_shape: tuple[int, ...], channels_last: bool | None = None) -> ImageLayout:
    """Infer the layout of an image `(H, W)`, `(C, H, W)` or `(H, W, C)`, or of a stack of images `(frames, ...)`.

    Every frame of a stack has its own channels. An image is read with the channels last if its last dimension is 1,
    3 or 4 and smaller than the sides, and with the channels first if these are the smallest dimension or the sides are
    equal.

    Args:
        network: name of the network, for messages.
        channels_last: where the channels are; None infers it from the shape.

    Raises:
        ValueError: If the observation is no image, or its shape is ambiguous.
    """
    if not 2 <= len(obs_shape) <= 4:
        raise ValueError(
            f"{network}: the observation's shape is {obs_shape}, not (C, H, W), (H, W, C), (H, W) or a stack of these;"
            " use MLP, or an environment with image observations."
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
    """Return whether the channels of `(first, middle, last)` come last; None if both readings or neither make sense."""
    if last in _CHANNELS and last < min(first, middle) and (first not in _CHANNELS or first == middle):
        return True
    if middle == last != first or (first < min(middle, last) and last not in _CHANNELS):
        return False
    return None
