"""Numbers of an observation that are kept, in their order; the bounds follow."""

import gymnasium as gym
import numpy as np
import pytest

from datamodules.core.errors import ConfigurationError
from datamodules.wrappers import SelectObservation


def test_the_numbers_at_the_indices_are_shown_in_this_order() -> None:
    whole, part = gym.make("Pendulum-v1"), SelectObservation(gym.make("Pendulum-v1"), [2, 0])

    first, _ = whole.reset(seed=3)
    shown, _ = part.reset(seed=3)
    after, shown_after = whole.step(np.ones(1))[0], part.step(np.ones(1))[0]

    np.testing.assert_array_equal([shown, shown_after], [first[[2, 0]], after[[2, 0]]])
    assert part.observation_space == gym.spaces.Box(np.float32([-8, -1]), np.float32([8, 1]))


@pytest.mark.parametrize("indices", [[], [0, 0], [3], [-1]])
def test_indices_that_show_nothing_or_something_else_are_refused(indices: list[int]) -> None:
    with pytest.raises(ConfigurationError, match="give at least one, and different ones from 0 to 2"):
        SelectObservation(gym.make("Pendulum-v1"), indices)


def test_other_observations_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"needs a Box observation of one dimension.*FlattenObservation first"):
        SelectObservation(gym.make("FrozenLake-v1"), [0])
