"""Networks with outputs per option: a torso and one head for all K options."""

from collections.abc import Callable
from typing import Any, cast

from torch import Tensor, nn

from modules.networks.base import Network, Obs, at_least_float32, extract_features, orthogonal
from modules.networks.multi_input import ObsShape, make_network

Torso = Callable[[tuple[int, ...]], nn.Module]
"""Factory of a network, given the shape of an observation."""


class TorsoWithHead(nn.Module):
    """Feed-forward torso with a head on its features.

    Args:
        network: makes the torso from `obs_shape`.
        obs_shape: shape of one observation, or its parts by name.
        head: makes the head from the number of features.

    Raises:
        ValueError: If the torso is recurrent.
    """

    def __init__(self, network: Torso, obs_shape: ObsShape, head: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.torso = make_network(network, obs_shape)
        if hasattr(self.torso, "unroll"):
            raise ValueError(
                f"Options cannot use {type(self.torso).__name__}, which is recurrent; use an MLP or a CNN."
            )
        self.head = head(cast(Network, self.torso).features)

    def forward(self, obs: Obs) -> Any:
        """Return the head's output for observations `[N, *obs_shape]`."""
        return self.head(extract_features(self.torso, obs))


class OptionHead(nn.Module):
    """Linear layer with `outputs` values for each of K options; orthogonal with gain 0.01.

    Args:
        features: number of input features.
        options: K.
        outputs: number of outputs per option; None for one, without its own dimension.
        bias: initial bias of all outputs, and nearly their initial value.
    """

    def __init__(self, features: int, options: int, outputs: int | None = None, bias: float = 0.0) -> None:
        super().__init__()
        self.shape = (options,) if outputs is None else (options, outputs)
        self.linear = orthogonal(nn.Linear(features, options * (outputs or 1)), 0.01)
        nn.init.constant_(self.linear.bias, bias)

    def forward(self, features: Tensor) -> Tensor:
        """Return outputs `[N, K]` or `[N, K, outputs]`, at least float32 under any precision."""
        output = self.linear(features)
        return at_least_float32(output).unflatten(-1, self.shape)
