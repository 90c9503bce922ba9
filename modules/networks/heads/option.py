"""Networks with outputs an option: a torso of their own, and a head for all K options at once."""

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor, nn

from modules.networks.base import Network, at_least_float32, features_of, orthogonal

Torso = Callable[[tuple[int, ...]], nn.Module]
"""Makes a network from the shape of an observation."""


class OnTorso(nn.Module):
    """A memoryless torso and a head on its features.

    Args:
        network: makes the torso from `obs_shape`.
        obs_shape: shape of one observation.
        head: makes the head from the number of features.

    Raises:
        ValueError: If the torso remembers.
    """

    def __init__(self, network: Torso, obs_shape: tuple[int, ...], head: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.torso = network(obs_shape)
        if hasattr(self.torso, "unroll"):
            raise ValueError(f"Options cannot use {type(self.torso).__name__}, which remembers; use an MLP or a CNN.")
        self.head = head(cast(Network, self.torso).features)

    def forward(self, obs: Tensor) -> Any:
        """What the head makes of observations `[N, *obs_shape]`."""
        return self.head(features_of(self.torso, obs))


class OptionHead(nn.Module):
    """A linear layer with `outputs` numbers for each of K options; orthogonal with gain 0.01.

    Args:
        features: what the torso returns.   options: K.
        outputs: of each option; None for one number, without a dimension of its own.
        bias: of all outputs at the start, which are nearly equal to it.
    """

    def __init__(self, features: int, options: int, outputs: int | None = None, bias: float = 0.0) -> None:
        super().__init__()
        self.shape = (options,) if outputs is None else (options, outputs)
        self.linear = orthogonal(nn.Linear(features, options * (outputs or 1)), 0.01)
        nn.init.constant_(self.linear.bias, bias)

    def forward(self, features: Tensor) -> Tensor:
        """Numbers `[N, K]` or `[N, K, outputs]`, float32 at least, whatever the precision."""
        output = self.linear(features)
        return at_least_float32(output).unflatten(-1, self.shape)
