"""Fully connected network (`MLP`)."""

import math

from torch import nn

from modules.networks.base import Activation, FeedForward, hidden_layers


class MLP(FeedForward):
    """Fully connected network of the flattened observation.

    Args:
        obs_shape: shape of one observation, any number of dimensions.
        hidden: widths of the layers; the last one is the number of features.
        activation: activation function after every layer.
        layer_norm: normalise before every activation; Q-learning without a target network (PQN) needs it.
        scale: factor of the observation; null divides bytes by the largest value of the observation space.

    Raises:
        ValueError: If `hidden` is empty.

    Source: the defaults are those of Schulman et al. 2017, arXiv:1707.06347, section 6.1.
    """

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        hidden: tuple[int, ...] = (64, 64),
        activation: Activation = "tanh",
        layer_norm: bool = False,
        scale: float | None = None,
    ) -> None:
        if not hidden:
            raise ValueError("MLP: hidden is empty; give at least one width, for example (64, 64).")
        layers = hidden_layers(math.prod(obs_shape), tuple(hidden), activation, layer_norm)
        super().__init__(nn.Sequential(nn.Flatten(), *layers), hidden[-1], scale)


def sac_mlp(obs_shape: tuple[int, ...]) -> MLP:
    """Return the network of soft actor-critic: two layers of 256 ReLU units.

    A named function, unlike a lambda, can be saved in a config.

    Source: Haarnoja et al. 2018, arXiv:1812.05905, appendix D.
    """
    return MLP(obs_shape, (256, 256), "relu")
