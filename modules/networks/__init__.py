"""Networks: what turns observations into features, and features into policies and values.

base        the protocol of a network, how to bring your own, and initialisation
mlp  cnn    memoryless networks: `MLP`, `CNN` for small planes, `NatureCNN` for 84x84 frames
recurrent   networks that remember: `LSTM`, `GRU`
heads       policies and values from features
squashed    policies over a box: tanh of a normal that depends on the state
twin        pairs of critics, computed together
normalize   running statistics of observations and rewards

To add one: a file with an `nn.Module` that satisfies `modules.networks.base.Network`, its name below, and a test in
`tests/modules/networks`. It imports torch and `modules.functional` only. Your own need not live here: any dotted path
works as a `class_path`.
"""

from modules.networks.cnn import CNN, NatureCNN
from modules.networks.mlp import MLP
from modules.networks.recurrent import GRU, LSTM

__all__ = ["CNN", "GRU", "LSTM", "MLP", "NatureCNN"]
