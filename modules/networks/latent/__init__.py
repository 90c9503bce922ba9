"""Parts of latent dynamical models: encoders, decoders, dynamics and action encoders; one file each.

A config chooses them by `class_path`, as every network. To add one: a class that satisfies the protocol at the top of
its file, and its name in `EXPORTS`.
"""

from typing import TYPE_CHECKING

from datamodules.core.exports import lazy_exports

EXPORTS = {
    "AxisActions": "modules.networks.latent.action_encoders",
    "IdentityActions": "modules.networks.latent.action_encoders",
    "LinearActions": "modules.networks.latent.action_encoders",
    "MLPActions": "modules.networks.latent.action_encoders",
    "StateDependent": "modules.networks.latent.action_encoders",
    "IdentityDecoder": "modules.networks.latent.decoders",
    "LinearDecoder": "modules.networks.latent.decoders",
    "MLPDecoder": "modules.networks.latent.decoders",
    "RBF": "modules.networks.latent.dynamics",
    "Ensemble": "modules.networks.latent.dynamics",
    "LinearDynamics": "modules.networks.latent.dynamics",
    "MLPDynamics": "modules.networks.latent.dynamics",
    "GRUEncoder": "modules.networks.latent.encoders",
    "MLPEncoder": "modules.networks.latent.encoders",
}
"""The exported classes and their modules; the imports below repeat them for type checkers."""

if TYPE_CHECKING:
    from modules.networks.latent.action_encoders import AxisActions as AxisActions
    from modules.networks.latent.action_encoders import IdentityActions as IdentityActions
    from modules.networks.latent.action_encoders import LinearActions as LinearActions
    from modules.networks.latent.action_encoders import MLPActions as MLPActions
    from modules.networks.latent.action_encoders import StateDependent as StateDependent
    from modules.networks.latent.decoders import IdentityDecoder as IdentityDecoder
    from modules.networks.latent.decoders import LinearDecoder as LinearDecoder
    from modules.networks.latent.decoders import MLPDecoder as MLPDecoder
    from modules.networks.latent.dynamics import RBF as RBF
    from modules.networks.latent.dynamics import Ensemble as Ensemble
    from modules.networks.latent.dynamics import LinearDynamics as LinearDynamics
    from modules.networks.latent.dynamics import MLPDynamics as MLPDynamics
    from modules.networks.latent.encoders import GRUEncoder as GRUEncoder
    from modules.networks.latent.encoders import MLPEncoder as MLPEncoder
else:
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
