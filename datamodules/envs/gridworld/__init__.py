"""A grid world of mines, generators and altars for several agents, as an on-device environment.

`env` has its rules, `maps` the random maps, `rendering` its pictures, and `forager` a scripted player that is the
baseline of agents. To add an object, give it a kind in `maps`, a rule in `env` and a plane in its observation.
"""

from typing import TYPE_CHECKING

from datamodules.core.exports import lazy_exports

EXPORTS = {"Forager": "datamodules.envs.gridworld.forager"}
"""The exported classes and their modules; the imports below repeat them for type checkers."""

if TYPE_CHECKING:
    from datamodules.envs.gridworld.forager import Forager as Forager
else:
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
