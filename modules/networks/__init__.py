"""Networks: torsos that map observations to features, and heads that map features to policies and values.

base             the protocol of a network, initialisation, layers
mlp  cnn         feed-forward torsos: `MLP`, `CNN` for small planes, `NatureCNN` for 84x84 frames
recurrent        recurrent torsos: `LSTM`, `GRU`, `MinGRU`
multi_input      observations with several parts: an encoder for each, joined, then a torso
tokens           lists of tokens, decoded to planes: `TokenEncoder`
choice_encoders  one-hot and embedding of choices
heads            policies, Q-values and twin critics from features
distributions    distributions over actions
preprocessing    casting, scaling and channel layout of observations
normalization    running statistics of observations and rewards
latent           encoders, decoders and dynamics of latent models

To add one: a file with an `nn.Module` that satisfies `modules.networks.base.Network`, its name in `EXPORTS`, and a test
in `tests/modules/networks`. It imports torch, `modules.functional` and the types of observations only. A network
outside this package needs no registration: any dotted path works as a `class_path`.
"""

from typing import TYPE_CHECKING

from datamodules.core.exports import lazy_exports

EXPORTS = {
    "MLP": "modules.networks.mlp",
    "CNN": "modules.networks.cnn",
    "NatureCNN": "modules.networks.cnn",
    "MultiInput": "modules.networks.multi_input",
    "TokenEncoder": "modules.networks.tokens",
    "OneHot": "modules.networks.choice_encoders",
    "Embedding": "modules.networks.choice_encoders",
    "LSTM": "modules.networks.recurrent",
    "GRU": "modules.networks.recurrent",
    "MinGRU": "modules.networks.recurrent",
    "QHead": "modules.networks.heads.q_value",
    "C51Head": "modules.networks.heads.q_value",
    "QuantileHead": "modules.networks.heads.q_value",
    "RescaledQHead": "modules.networks.heads.q_value",
    "TwinMLP": "modules.networks.heads.twin_critic",
    "TwinTorsoCritic": "modules.networks.heads.twin_critic",
    "RecurrentCritic": "modules.networks.heads.recurrent_critic",
    "MultiInputCritic": "modules.networks.heads.multi_input_critic",
}
"""The exported classes and their modules; the imports below repeat them for type checkers."""

if TYPE_CHECKING:
    from modules.networks.choice_encoders import Embedding as Embedding
    from modules.networks.choice_encoders import OneHot as OneHot
    from modules.networks.cnn import CNN as CNN
    from modules.networks.cnn import NatureCNN as NatureCNN
    from modules.networks.heads.multi_input_critic import MultiInputCritic as MultiInputCritic
    from modules.networks.heads.q_value import C51Head as C51Head
    from modules.networks.heads.q_value import QHead as QHead
    from modules.networks.heads.q_value import QuantileHead as QuantileHead
    from modules.networks.heads.q_value import RescaledQHead as RescaledQHead
    from modules.networks.heads.recurrent_critic import RecurrentCritic as RecurrentCritic
    from modules.networks.heads.twin_critic import TwinMLP as TwinMLP
    from modules.networks.heads.twin_critic import TwinTorsoCritic as TwinTorsoCritic
    from modules.networks.mlp import MLP as MLP
    from modules.networks.multi_input import MultiInput as MultiInput
    from modules.networks.recurrent import GRU as GRU
    from modules.networks.recurrent import LSTM as LSTM
    from modules.networks.recurrent import MinGRU as MinGRU
    from modules.networks.tokens import TokenEncoder as TokenEncoder
else:
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
