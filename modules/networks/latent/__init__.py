"""Parts of latent dynamical models: encoders, decoders, dynamics, and encoders of actions; one file each.

They are chosen by class_path, as every network is. To add one: a class that satisfies the protocol at the top of its
file.
"""

from modules.networks.latent.dynamics import RBF, Ensemble, LinearDynamics, MLPDynamics

__all__ = ["RBF", "Ensemble", "LinearDynamics", "MLPDynamics"]
