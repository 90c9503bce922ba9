"""Twin critics of observations with several parts (`MultiInputCritic`)."""

from collections.abc import Callable, Mapping
from typing import Any, cast

from torch import Tensor, nn

from datamodules.core.types import ObsPart
from modules.networks.base import call_without_hooks
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.multi_input import NetworkFactory, ObsShape, PartEncoders, takes_parts

CriticFactory = Callable[[tuple[int, ...], int, int], nn.Module]
"""Factory of twin critics from `obs_shape`, action dimensions and outputs."""


class MultiInputCritic(nn.Module):
    """Two critics on the joined features of the parts of an observation; both share the encoders.

    Args:
        obs_parts: the parts of the observation by name; given by the algorithm.
        action_dims: number of dimensions of a continuous action; 0 for discrete actions, with one output each.
        outputs: number of outputs of each critic.
        encoders: network of a part by its name; null: as those of `MultiInput`.
        critic: twin critics of the joined features; makes them from their shape.
    """

    multi_input = True

    def __init__(
        self,
        obs_parts: dict[str, ObsPart],
        action_dims: int,
        outputs: int,
        encoders: dict[str, NetworkFactory] | None = None,
        critic: CriticFactory = TwinMLP,
    ) -> None:
        super().__init__()
        self.parts = PartEncoders(obs_parts, encoders)
        self.critic = critic((self.parts.features,), action_dims, outputs)

    def forward(self, obs: Mapping[str, Tensor], action: Tensor | None = None) -> Tensor:
        """Return estimates `[2, N, outputs]` of parts `[N, *shape]` by name."""
        return self.critic(call_without_hooks(self.parts, obs), action)


def make_critic(critic: CriticFactory, obs_shape: ObsShape, action_dims: int, outputs: int) -> nn.Module:
    """Create `critic(obs_shape, ...)`, or for the parts of an observation a `MultiInputCritic` around it."""
    if not isinstance(obs_shape, dict):
        return critic(obs_shape, action_dims, outputs)
    if takes_parts(critic):
        return cast(Callable[[Any, int, int], nn.Module], critic)(obs_shape, action_dims, outputs)
    return MultiInputCritic(obs_shape, action_dims, outputs, critic=critic)
