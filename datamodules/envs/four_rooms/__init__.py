"""Grid worlds of n x n rooms joined by doorways, on the device, and hand-written options that walk to the doorways.

plan              walls, rooms and doorways of a grid of rooms, and shortest paths to the doorways
env               `FourRooms`: navigation to a goal
errands           `FetchAndDeliver`: transport of an item; `KeyDoor`: a goal behind locked doors
doorway_options   scripted options of `SACOptions`: `GoToDoorway` and `PrimitiveAction`
eigenpurpose      rewards of learned options along the slow directions of the rooms: `Eigenpurpose`
"""

from typing import TYPE_CHECKING

from datamodules.core.exports import lazy_exports

EXPORTS = {
    "Eigenpurpose": "datamodules.envs.four_rooms.eigenpurpose",
    "GoToDoorway": "datamodules.envs.four_rooms.doorway_options",
    "PrimitiveAction": "datamodules.envs.four_rooms.doorway_options",
}
"""The exported classes and their modules; the imports below repeat them for type checkers."""

if TYPE_CHECKING:
    from datamodules.envs.four_rooms.doorway_options import GoToDoorway as GoToDoorway
    from datamodules.envs.four_rooms.doorway_options import PrimitiveAction as PrimitiveAction
    from datamodules.envs.four_rooms.eigenpurpose import Eigenpurpose as Eigenpurpose
else:
    __getattr__, __dir__ = lazy_exports(__name__, EXPORTS)
