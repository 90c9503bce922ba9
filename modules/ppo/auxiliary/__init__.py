"""Auxiliary losses of PPO: terms that are added to its loss (`model.auxiliary_losses`).

To add one, subclass `AuxiliaryLoss` (`modules.ppo.auxiliary.base`), implement `loss`, and name the class by its dotted
path, or add it to the exports of `modules`.
"""
