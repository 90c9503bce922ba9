"""Optimizers, flat parameters and collective operations."""

from typing import TYPE_CHECKING

from datamodules.core.exports import lazy_exports

EXPORTS = {"MuonAdamW": "modules.optim.muon"}
"""The exported classes and their modules; the import below repeats them for type checkers."""

if TYPE_CHECKING:
    from modules.optim.muon import MuonAdamW as MuonAdamW
else:
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
