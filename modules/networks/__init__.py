"""Networks: torsos that map observations to features, and heads that map features to policies and values.

base             the protocol of a network, initialisation, layers
mlp  cnn         memoryless torsos: `MLP`, `CNN` for small planes, `NatureCNN` for 84x84 frames
recurrent        recurrent torsos: `LSTM`, `GRU`
heads            policies, Q-values and twin critics from features
distributions    distributions over actions
preprocessing    casting, scaling and channel layout of observations
normalization    running statistics of observations and rewards
latent           encoders, decoders and dynamics of latent models

To add one: a file with an `nn.Module` that satisfies `modules.networks.base.Network`, its name in `EXPORTS`, and a test
in `tests/modules/networks`. It imports torch and `modules.functional` only. A network outside this package needs no
registration: any dotted path works as a `class_path`.
"""

from typing import TYPE_CHECKING

from datamodules.core.exports import lazy_exports

EXPORTS = {
    "MLP": "modules.networks.mlp",
    "CNN": "modules.networks.cnn",
    "NatureCNN": "modules.networks.cnn",
    "LSTM": "modules.networks.recurrent",
    "GRU": "modules.networks.recurrent",
    "QHead": "modules.networks.heads.q_value",
    "C51Head": "modules.networks.heads.q_value",
    "QuantileHead": "modules.networks.heads.q_value",
    "TwinMLP": "modules.networks.heads.twin_critic",
    "TwinTorsoCritic": "modules.networks.heads.twin_critic",
}
"""The exported classes and their modules; the imports below repeat them for type checkers."""

if TYPE_CHECKING:
    from modules.networks.cnn import CNN as CNN
    from modules.networks.cnn import NatureCNN as NatureCNN
    from modules.networks.heads.q_value import C51Head as C51Head
    from modules.networks.heads.q_value import QHead as QHead
    from modules.networks.heads.q_value import QuantileHead as QuantileHead
    from modules.networks.heads.twin_critic import TwinMLP as TwinMLP
    from modules.networks.heads.twin_critic import TwinTorsoCritic as TwinTorsoCritic
    from modules.networks.mlp import MLP as MLP
    from modules.networks.recurrent import GRU as GRU
    from modules.networks.recurrent import LSTM as LSTM
else:
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
