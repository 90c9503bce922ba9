"""Wrappers of Gymnasium environments that Gymnasium lacks, and the application of those that a config lists.

`data.wrappers` names classes: Gymnasium's own (`ResizeObservation`, `gymnasium.wrappers.ResizeObservation`), those of
this package, or yours. To add one, write a `gymnasium.Wrapper` in its own file and add its name to `EXPORTS`. No module
of this package imports torch: worker processes apply the wrappers.
"""

from typing import TYPE_CHECKING

from datamodules.core.exports import lazy_exports

EXPORTS = {
    "EpisodicLife": "datamodules.wrappers.episodic_life",
    "SelectObservation": "datamodules.wrappers.select_observation",
}
"""The exported classes and their modules; the imports below repeat them for type checkers."""

if TYPE_CHECKING:
    from datamodules.wrappers.episodic_life import EpisodicLife as EpisodicLife
    from datamodules.wrappers.select_observation import SelectObservation as SelectObservation
else:
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
