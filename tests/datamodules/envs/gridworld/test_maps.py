"""The maps of the grid world: everything can be reached, and agents start apart."""

import numpy as np
import pytest

from datamodules.envs.gridworld.maps import FIRST_OBJECT, FREE, WALL, make_maps


@pytest.mark.parametrize(("size", "margin", "density"), [(7, 1, 0.0), (12, 5, 0.25)])
def test_every_object_and_free_cell_can_be_reached(size: int, margin: int, density: float) -> None:
    maps = make_maps(32, size, margin, 9, density, 3, 0)
    assert maps.side == size + 2 * margin
    for content, starts in zip(maps.content.view(-1, maps.side, maps.side).numpy(), maps.starts.numpy(), strict=True):
        assert (np.sort(content[content >= FIRST_OBJECT]) == np.arange(FIRST_OBJECT, FIRST_OBJECT + 9)).all()
        frame = np.ones_like(content, bool)
        frame[margin:-margin, margin:-margin] = False
        assert (content[frame] == WALL).all()
        reached, left = set(), [divmod(int(starts[0]), maps.side)]
        while left:
            place = left.pop()
            if place in reached:
                continue
            reached.add(place)
            if content[place] == FREE:
                left += [(place[0] + down, place[1] + right) for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0))]
        assert {*zip(*(content != WALL).nonzero(), strict=True)} <= reached
        assert len(set(starts.tolist())) == len(starts) and (content.flatten()[starts] == FREE).all()
