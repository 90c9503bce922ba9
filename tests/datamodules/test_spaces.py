import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from datamodules.spaces import spaces_of
from datamodules.types import UsageError

OBS, ACTION = Box(-1, 1, (3,)), Discrete(2)


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (Box(-np.inf, np.inf, (3,), np.float64), (3,), "float32"),
        (Box(0, 255, (84, 84, 4), np.uint8), (84, 84, 4), "uint8"),
        (Box(0, 9, (2, 2), np.int16), (2, 2), "int64"),
        (Discrete(5, start=3), (5,), "float32"),
        (MultiDiscrete([2, 3]), (2,), "float32"),
        (MultiBinary(4), (4,), "float32"),
    ],
)
def test_observations(space, shape, dtype):
    spaces = spaces_of(space, ACTION, name="Env")
    assert (spaces["obs_shape"], spaces["obs_dtype"]) == (shape, dtype)


@pytest.mark.parametrize(
    ("space", "kind", "sizes", "low", "high", "start"),
    [
        (Discrete(3, start=-1), "discrete", [3], [], [], [-1]),
        (MultiDiscrete([2, 3], start=[1, 5]), "multidiscrete", [2, 3], [], [], [1, 5]),
        (MultiBinary([1, 2]), "binary", [2, 2], [], [], [0, 0]),
        (Box(np.array([-1, 0]), np.array([1, 2]), dtype=np.float64), "continuous", [], [-1, 0], [1, 2], []),
    ],
)
def test_actions(space, kind, sizes, low, high, start):
    spaces = spaces_of(OBS, space, name="Env")
    assert (spaces["action_kind"], spaces["action_sizes"], spaces["action_start"]) == (kind, sizes, start)
    assert (spaces["action_low"], spaces["action_high"]) == (low, high)


@pytest.mark.parametrize("space", [Dict(a=OBS), Tuple([OBS]), Text(3)])
def test_other_observations_are_refused_by_name(space):
    with pytest.raises(UsageError, match=f"Env shows a {type(space).__name__}.*FlattenObservation"):
        spaces_of(space, ACTION, name="Env")


@pytest.mark.parametrize("space", [Dict(a=ACTION), MultiDiscrete(np.full((2, 2), 3))])
def test_other_actions_are_refused_by_name(space):
    with pytest.raises(UsageError, match=f"Env takes actions in a {type(space).__name__}.*ActionWrapper"):
        spaces_of(OBS, space, name="Env")


def test_an_infinite_action_box_is_refused_with_a_sentence():
    with pytest.raises(UsageError, match=r"Env takes actions in a Box of shape \(2,\).*finite bounds"):
        spaces_of(OBS, Box(-np.inf, 1, (2,)), name="Env")


def test_spaces_are_plain_data():
    spaces = spaces_of(
        *(getattr(gym.make("Pendulum-v1"), name) for name in ("observation_space", "action_space")), name="P"
    )
    assert {type(value) for value in spaces["action_low"] + spaces["action_high"]} == {float}
