"""Car-ball: cars drive, jump and boost a ball into the other team's goal, as an on-device environment.

`env` has the `TorchFuncEnv`; `field` the constants and starts, `physics` the motion of cars and ball, `rewards` the
terms of the reward, `observation` the 180 numbers that a car observes, `rendering` the pictures, and `chaser` a
scripted opponent. To add a reward term, add its weight to `REWARDS` and its value to `reward_terms`.
"""

from typing import TYPE_CHECKING

from datamodules.core.exports import lazy_exports

EXPORTS = {"Chaser": "datamodules.envs.carball.chaser"}
"""The exported classes and their modules; the imports below repeat them for type checkers."""

if TYPE_CHECKING:
    from datamodules.envs.carball.chaser import Chaser as Chaser
else:
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
