"""DensePlanes: the tokens of MettaGrid's observations as planes, on the host."""

from typing import Any

import numpy as np

Array = np.ndarray
TYPES = ("agent", "altar", "generator", "mine", "wall")
GLOBAL, NONE = 254, 255
"""Places of tokens about the agent itself, and of unused tokens."""


class DensePlanes:
    """Function from tokens `[N, T, 3]` to planes, uint8 `[N, 8, view, view]`.

    Planes: agents, altars, generators, mines and walls, 255 for one; then ore, batteries and hearts in a cell, as a
    share of the capacity of an agent, 255 at most.

    Args:
        config: the game.

    Attributes:
        shape: shape of the planes of one agent.
    """

    def __init__(self, config: Any):
        ids, game = config.game.id_map(), config.game
        names = [name.removeprefix("type:") for name in ids.tag_names()]
        resources = game.resource_names
        self.view = game.obs.width
        self.shape = (len(TYPES) + len(resources), self.view, self.view)
        self.plane = np.full((256, 256), -1)
        self.value = np.zeros((256, 256), np.uint8)
        for number, name in enumerate(names):
            self.plane[ids.feature_id("tag"), number] = TYPES.index(name)
            self.value[ids.feature_id("tag"), number] = 255
        most = max(limit.base for limit in game.agent.inventory.limits.values())
        for number, name in enumerate(resources):
            feature = ids.feature_id(f"inv:{name}")
            self.plane[feature] = len(TYPES) + number
            self.value[feature] = np.minimum(np.arange(256) * 255 // most, 255)

    def __call__(self, tokens: Array) -> Array:
        """Return the planes of tokens."""
        place, feature, value = np.moveaxis(tokens, 2, 0)
        plane = self.plane[feature, value]
        row, token = ((plane >= 0) & (place < GLOBAL)).nonzero()
        planes = np.zeros((len(tokens), *self.shape), np.uint8)
        cell = place[row, token]
        numbers = self.value[feature[row, token], value[row, token]]
        planes[row, plane[row, token], cell >> 4, cell & 15] = numbers
        return planes
