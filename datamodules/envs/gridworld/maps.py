"""Random maps of the grid world, drawn once on the host so that a reset on the device is one look-up."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError

FREE, WALL, MINE, GENERATOR, ALTAR = range(5)
"""Kinds of cells. The content of a cell is `FREE`, `WALL`, or `FIRST_OBJECT` plus the number of its object."""

FIRST_OBJECT = 2
MAX_OBJECTS = 256 - FIRST_OBJECT
STARTS_PER_AGENT = 8
"""Starting cells of a map for each agent, on a quarter of its cells at most."""

TRIES = 50
"""Draws of a map whose objects cannot all be reached, before it is given up."""

Array = np.ndarray


class Maps(NamedTuple):
    """N square maps with a frame of walls, cells numbered row by row.

    content: content of the cells, uint8 `[N, side * side]`.   starts: cells for agents `[N, starts]`, in random order.
    side: cells along one side, with the frame.   margin: thickness of the frame.
    """

    content: Tensor
    starts: Tensor
    side: int
    margin: int


def object_kinds(mines: int, generators: int, altars: int) -> list[int]:
    """Return the kinds of all objects in the order of their numbers: altars last."""
    return [MINE] * mines + [GENERATOR] * generators + [ALTAR] * altars


@lru_cache(maxsize=8)
def make_maps(
    num_maps: int, size: int, margin: int, num_objects: int, wall_density: float, num_agents: int, seed: int
) -> Maps:
    """Draw maps on which every object and every free cell can be reached from every other one.

    Args:
        num_maps: number of maps.   size: cells along one side within the frame.   margin: thickness of the frame.
        num_objects: objects of a map.   wall_density: probability of a wall in a cell.   num_agents: agents of a map.
        seed: seed of all maps.

    Raises: ConfigurationError if the objects do not fit.
    """
    generator = np.random.default_rng(seed)
    num_starts = max(num_agents, min(STARTS_PER_AGENT * num_agents, size * size // 4))
    content = np.full((num_maps, size * size), WALL, np.uint8)
    starts = np.zeros((num_maps, num_starts), np.int64)
    left = np.arange(num_maps)
    for _ in range(TRIES if num_objects + num_starts <= size * size else 0):
        drawn, cells, good = _draw(generator, len(left), size, num_objects, wall_density, num_starts)
        content[left[good]], starts[left[good]] = drawn[good], cells[good]
        left = left[~good]
        if not len(left):
            break
    else:
        raise ConfigurationError(
            f"A grid world of size {size} has no room for {num_objects} objects and {num_starts} starting cells at"
            f" wall_density {wall_density:g}: choose a larger size, fewer objects or a lower density."
        )
    framed = np.pad(
        content.reshape(num_maps, size, size), ((0, 0), (margin, margin), (margin, margin)), constant_values=WALL
    )
    side = size + 2 * margin
    places = (starts // size + margin) * side + starts % size + margin
    return Maps(torch.from_numpy(framed.reshape(num_maps, -1)), torch.from_numpy(places), side, margin)


def _draw(
    generator: np.random.Generator, number: int, size: int, num_objects: int, wall_density: float, num_starts: int
) -> tuple[Array, Array, Array]:
    """Return the content of maps `[N, size * size]`, starting cells `[N, num_starts]` and which maps are usable.

    Free cells that cannot be reached become walls.
    """
    cells = size * size
    keys = generator.random((number, cells))
    wall = generator.random((number, cells)) < wall_density
    order = np.argsort(keys + wall, 1)  # free cells first, in random order
    content = np.where(wall, WALL, FREE).astype(np.uint8)
    np.put_along_axis(content, order[:, :num_objects], np.arange(FIRST_OBJECT, FIRST_OBJECT + num_objects), 1)
    free = (content == FREE).reshape(number, size, size)
    seed = np.zeros((number, cells), bool)
    np.put_along_axis(seed, order[:, num_objects : num_objects + 1], True, 1)
    reached = flood(seed.reshape(free.shape) & free, free)
    beside = (neighbours(reached) | reached).reshape(number, cells)
    fits = ~np.take_along_axis(wall, order[:, :num_objects], 1).any(1)
    touched = np.take_along_axis(beside, order[:, :num_objects], 1).all(1)
    flat = reached.reshape(number, cells)
    enough = (flat.sum(1) >= num_starts) & (2 * flat.sum(1) >= free.sum((1, 2)))
    content[(content == FREE) & ~flat] = WALL
    return content, np.argsort(keys + ~flat, 1)[:, :num_starts], fits & touched & enough


def neighbours(marked: Array) -> Array:
    """Return the cells beside marked ones, bool `[N, size, size]`."""
    framed = np.pad(marked, ((0, 0), (1, 1), (1, 1)))
    return framed[:, :-2, 1:-1] | framed[:, 2:, 1:-1] | framed[:, 1:-1, :-2] | framed[:, 1:-1, 2:]


def flood(marked: Array, free: Array) -> Array:
    """Return the free cells that can be reached from marked ones, bool `[N, size, size]`."""
    while True:
        grown = marked | (neighbours(marked) & free)
        if np.array_equal(grown, marked):
            return marked
        marked = grown
