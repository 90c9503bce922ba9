"""Encoders of choices, that is of Discrete and MultiDiscrete parts of an observation: `OneHot`, `Embedding`."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor, nn

from modules.networks.base import State


class ChoiceEncoder(nn.Module):
    """Base of encoders of choices: feed-forward networks built from the numbers of choices instead of a shape.

    Args:
        sizes: number of choices of each element of the part, flat.
        features: number of output features.
    """

    offsets: Tensor

    def __init__(self, sizes: Sequence[int], features: int) -> None:
        super().__init__()
        self.features, self.total = features, sum(sizes)
        self.register_buffer("offsets", torch.tensor([0, *accumulate(sizes)][:-1]), persistent=False)

    def initial_state(self, batch: int) -> State:
        """Return `{}`: the network has no state."""
        return {}

    def index(self, obs: Tensor) -> Tensor:
        """Return the index `[N, elements]` of every choice among the choices of all elements."""
        return obs.reshape(obs.shape[0], -1).long() + self.offsets


class OneHot(ChoiceEncoder):
    """One-hot encoding of every element, concatenated; it has no parameters.

    Args:
        sizes: number of choices of each element of the part, flat.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__(sizes, sum(sizes))

    def forward(self, obs: Tensor, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        """Return features `[N, sum(sizes)]` of choices `[N, *shape]` from 0, and `state` unchanged."""
        index = self.index(obs)
        zeros = torch.zeros(index.shape[0], self.total, device=index.device)  # `len` is a constant to `torch.export`
        return zeros.scatter(1, index, 1.0), state


class Embedding(ChoiceEncoder):
    """Learned vector of every choice, concatenated over the elements.

    Args:
        sizes: number of choices of each element of the part, flat.
        dims: width of a choice's vector.

    Raises:
        ValueError: If `dims` is not positive.
    """

    def __init__(self, sizes: Sequence[int], dims: int = 16) -> None:
        if dims < 1:
            raise ValueError(f"Embedding: dims is {dims}; it must be at least 1.")
        super().__init__(sizes, len(sizes) * dims)
        self.table = nn.Embedding(self.total, dims)

    def forward(self, obs: Tensor, state: State, episode_start: Tensor) -> tuple[Tensor, State]:
        """Return features `[N, elements x dims]` of choices `[N, *shape]` from 0, and `state` unchanged."""
        return self.table(self.index(obs)).flatten(1), state
