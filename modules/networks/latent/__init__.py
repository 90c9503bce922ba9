"""Parts of latent dynamical models: encoders, decoders, dynamics, and encoders of actions; one file each.

They are chosen by class_path, as every network is. To add one: a class that satisfies the protocol at the top of its
file.
"""

from modules.networks.latent.action_encoders import LinearActions, MLPActions, Pushed, StateDependent, Unchanged
from modules.networks.latent.decoders import IdentityDecoder, LinearDecoder, MLPDecoder
from modules.networks.latent.dynamics import RBF, Ensemble, LinearDynamics, MLPDynamics
from modules.networks.latent.encoders import GRUEncoder, MLPEncoder

__all__ = [
    "RBF",
    "Ensemble",
    "GRUEncoder",
    "IdentityDecoder",
    "LinearActions",
    "LinearDecoder",
    "LinearDynamics",
    "MLPActions",
    "MLPDecoder",
    "MLPDynamics",
    "MLPEncoder",
    "Pushed",
    "StateDependent",
    "Unchanged",
]
