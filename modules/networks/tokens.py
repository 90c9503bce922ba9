"""TokenEncoder: observations that are lists of tokens, as MettaGrid's are."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from modules.networks.base import Activation, FeedForward, hidden_layers

GLOBAL, NONE = 254, 255
"""Places of tokens about the agent itself, which are put into the centre of the view, and of unused tokens."""


class TokenEncoder(FeedForward):
    """Decode tokens to dense planes, then fully connected layers.

    A token is three bytes: a place (row in the high nibble, column in the low one), a feature and its value. Every
    feature of `numbers` has a plane that holds its value times `value_scale`; every feature of `categories` has a plane
    for each value, 1 where a token has it. Tokens of other features and values are left out.

    Args:
        obs_shape: `(tokens, 3)`.
        numbers: features whose value is a number.
        categories: number of values of the features whose value is a category, by feature.
        view: rows and columns of the planes, at most 15.
        hidden: widths of the fully connected layers.
        activation: activation function after every layer.
        layer_norm: normalise every layer before its activation.
        value_scale: factor of numbers.

    Raises:
        ValueError: If `obs_shape` is not that of tokens, no feature is named, or the view is out of range.
    """

    lookup: Tensor

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        numbers: Sequence[int] = (),
        categories: Mapping[int, int] | None = None,
        view: int = 11,
        hidden: tuple[int, ...] = (128, 128),
        activation: Activation = "relu",
        layer_norm: bool = False,
        value_scale: float = 0.1,
    ) -> None:
        if len(obs_shape) != 2 or obs_shape[1] != 3:
            raise ValueError(f"TokenEncoder: the observation's shape is {tuple(obs_shape)}, not (tokens, 3).")
        if not numbers and not categories:
            raise ValueError("TokenEncoder: name the features to decode in numbers and categories.")
        if not 1 <= view <= 15:
            raise ValueError(f"TokenEncoder: view is {view}; a token's place has rows and columns from 0 to 14.")
        first, sizes = len(numbers), categories or {}
        num_planes = first + sum(sizes.values())
        features = hidden[-1] if hidden else num_planes * view * view
        layers = hidden_layers(num_planes * view * view, tuple(hidden), activation, layer_norm)
        super().__init__(nn.Sequential(nn.Flatten(), *layers), features, scale=1.0)
        self.view, self.planes, self.value_scale = view, num_planes, value_scale
        lookup = torch.full((256, 256), num_planes)
        for plane, feature in enumerate(numbers):
            lookup[feature] = plane
        for feature, size in sizes.items():
            lookup[feature, :size] = torch.arange(first, first + size)
            first += size
        self.register_buffer("lookup", lookup.flatten(), persistent=False)
        self.first_category = len(numbers)

    def preprocess(self, obs: Tensor) -> Tensor:
        """Return planes `[B, planes, view, view]` of tokens `[B, T, 3]`, in the dtype of the weights."""
        place, feature, value = obs.long().unbind(-1)
        plane = self.lookup.take(feature * 256 + value)
        middle, cells = self.view // 2 * (self.view + 1), self.view**2
        row, column = place >> 4, place & 15
        cell = torch.where(place == GLOBAL, middle, row * self.view + column)
        inside = (place == GLOBAL) | ((row < self.view) & (column < self.view))
        index = torch.where(inside & (plane < self.planes), plane * cells + cell, self.planes * cells)
        numbers = torch.where(plane < self.first_category, value * self.value_scale, 1.0)
        dtype = next(self.parameters(), numbers).dtype
        planes = torch.zeros(obs.shape[0], self.planes * cells + 1, dtype=dtype, device=obs.device)
        planes = planes.scatter(1, index, numbers.to(dtype))[:, :-1]
        return planes.view(-1, self.planes, self.view, self.view)
