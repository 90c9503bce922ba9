"""Twin critics on one recurrent torso (`RecurrentCritic`)."""

from collections.abc import Callable
from typing import cast

from torch import Tensor, nn

from modules.networks.base import Activation, Network
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.multi_input import ObsShape, make_network
from modules.networks.recurrent import LSTM


class RecurrentCritic(nn.Module):
    """Two critics of a recurrent torso's features and the action, for `modules.SAC` with a recurrent network.

    Both critics share the torso; the actor has its own.

    Args:
        obs_shape: shape of one observation, or its parts by name.
        action_dims: number of dimensions of a continuous action; 0 for discrete actions, with one output each.
        outputs: number of outputs of each critic.
        network: makes the recurrent torso from `obs_shape`.
        hidden: widths of the layers after the torso.
        activation: activation function after every one of these layers.

    Raises:
        ValueError: If the torso is not recurrent, or `hidden` is empty.

    Source: Ni et al. 2022, arXiv:2110.05038, figure 7: separate recurrent networks for actor and critics, which learn
    better there than a shared one.
    """

    multi_input = True

    def __init__(
        self,
        obs_shape: ObsShape,
        action_dims: int,
        outputs: int,
        network: Callable[[tuple[int, ...]], nn.Module] = LSTM,
        hidden: tuple[int, ...] = (256,),
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        self.torso = make_network(network, obs_shape)
        if not hasattr(self.torso, "unroll"):
            raise ValueError(
                f"RecurrentCritic: network is {type(self.torso).__name__}, which is feed-forward; use LSTM, GRU or"
                " MinGRU, or TwinMLP as critic."
            )
        features = cast(Network, self.torso).features
        self.heads = TwinMLP((features,), action_dims, outputs, hidden, activation, scale=1.0)

    def forward(self, features: Tensor, action: Tensor | None = None) -> Tensor:
        """Return estimates `[2, N, outputs]` from the torso's features `[N, F]`."""
        return self.heads(features, action)
