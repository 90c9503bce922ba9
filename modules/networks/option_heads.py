"""Networks with one output an option: the master's preferences, and how readily each option ends."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from modules.networks.base import Network, orthogonal


class PerOption(nn.Module):
    """A torso of its own and a linear layer with one output an option.

    Args:
        network: makes the torso from `obs_shape`; it must be memoryless.
        obs_shape: shape of one observation.
        options: K.
        bias: of the outputs at the start; the weights are orthogonal with gain 0.01, so the outputs are nearly `bias`.

    Raises:
        ValueError: If the torso remembers.
    """

    def __init__(
        self,
        network: Callable[[tuple[int, ...]], nn.Module],
        obs_shape: tuple[int, ...],
        options: int,
        bias: float = 0.0,
    ) -> None:
        super().__init__()
        self.torso = network(obs_shape)
        if hasattr(self.torso, "unroll"):
            raise ValueError(f"option_network is {type(self.torso).__name__}, which remembers; use a memoryless one.")
        self.linear = orthogonal(nn.Linear(cast(Network, self.torso).features, options), 0.01)
        nn.init.constant_(self.linear.bias, bias)

    def forward(self, obs: Tensor) -> Tensor:
        """Outputs `[B, K]` of observations `[B, *obs_shape]`, float32 at least, whatever the precision."""
        reset = torch.zeros(len(obs), dtype=torch.bool, device=obs.device)
        output = self.linear(self.torso(obs, {}, reset)[0])
        return output.float() if output.dtype.itemsize < 4 else output
