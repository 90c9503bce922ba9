import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence, Text

from datamodules.core.errors import ConfigurationError
from datamodules.env_interface.spaces import make_action_encoder, make_obs_decoder, to_space_spec

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
    spaces = to_space_spec(space, ACTION, name="Env")
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
    spaces = to_space_spec(OBS, space, name="Env")
    assert (spaces["action_type"], spaces["action_sizes"], spaces["action_start"]) == (kind, sizes, start)
    assert (spaces["action_low"], spaces["action_high"]) == (low, high)


def test_other_observations_are_refused_by_name():
    with pytest.raises(ConfigurationError, match=r"Env has a Text .*FlattenObservation"):
        to_space_spec(Text(3), ACTION, name="Env")


@pytest.mark.parametrize("space", [Dict(a=ACTION), MultiDiscrete(np.full((2, 2), 3))])
def test_other_actions_are_refused_by_name(space):
    with pytest.raises(ConfigurationError, match=f"Env takes actions in a {type(space).__name__}.*ActionWrapper"):
        to_space_spec(OBS, space, name="Env")


def test_an_infinite_action_box_is_refused_with_a_sentence():
    with pytest.raises(ConfigurationError, match=r"Env takes actions in a Box of shape \(2,\).*finite bounds"):
        to_space_spec(OBS, Box(-np.inf, 1, (2,)), name="Env")


def test_spaces_are_plain_data():
    spaces = to_space_spec(
        *(getattr(gym.make("Pendulum-v1"), name) for name in ("observation_space", "action_space")), name="P"
    )
    assert {type(value) for value in spaces["action_low"] + spaces["action_high"]} == {float}


@pytest.mark.parametrize(
    ("space", "asked", "taken"),
    [
        (Box(0, 4, (1,), np.int64), [0.0, 0.7, 0.9, 2.0, 3.3, 4.0, 9.0, -1.0], [0, 0, 1, 2, 4, 4, 4, 0]),
        (Box(-1, 1, (1,), np.int8), [-1.0, -0.4, -0.3, 0.0, 0.3, 0.4, 1.0], [-1, -1, 0, 0, 0, 1, 1]),
        (Box(0, 255, (1,), np.uint8), [0.0, 254.9, 255.0], [0, 255, 255]),
    ],
)
def test_whole_numbers_share_the_range_evenly(space, asked, taken):
    actions = make_action_encoder(space)(np.array(asked, np.float32)[:, None])
    assert actions.dtype == space.dtype
    assert actions.ravel().tolist() == taken
    even = make_action_encoder(space)(np.linspace(space.low[0], space.high[0], 100_001)[:, None])
    _, counts = np.unique(even, return_counts=True)
    assert len(counts) == int(space.high[0]) - int(space.low[0]) + 1
    assert counts.max() - counts.min() <= 2


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_constant_parts_of_a_box_are_no_part_of_the_policy(dtype):
    box = Box(np.array([[-1, 5], [0, 7]], dtype), np.array([[1, 5], [4, 7]], dtype), dtype=dtype)
    spaces = to_space_spec(OBS, box, name="Env")
    assert (spaces["action_low"], spaces["action_high"]) == ([-1, 0], [1, 4])
    written = make_action_encoder(box)(np.array([[0.5, 9.0], [-2.0, 1.0]], np.float32))
    assert written[:, :, 1].tolist() == [[5, 7]] * 2
    assert all(box.contains(action) for action in written)


@pytest.mark.parametrize(
    "space",
    [
        Box(-3e38, 3e38, (2,)),
        Box(1e8, 1e8 + 64, (1,), np.float64),
        Box(1.0, 1.0 + 1e-9, (1,), np.float64),
        Box(-1e300, 1e300, (1,), np.float64),
        Box(-(2**62), 2**62, (1,), np.int64),
    ],
)
def test_a_range_that_float32_cannot_rescale_is_refused(space):
    with pytest.raises(
        ConfigurationError, match=r"^Env takes actions from .* to .* in part 0, .* float32 cannot rescale"
    ):
        to_space_spec(OBS, space, name="Env")


def test_a_box_without_anything_to_choose_is_refused():
    with pytest.raises(ConfigurationError, match=r"^Env has actions without a choice"):
        to_space_spec(OBS, Box(1, 1, (2,)), name="Env")


def test_scalars_become_vectors_of_one_and_come_back():
    scalar = Box(-1, 1, ())
    spaces = to_space_spec(scalar, scalar, name="Env")
    assert (spaces["obs_shape"], spaces["action_low"]) == ((1,), [-1])
    read = make_obs_decoder(scalar)
    assert (read(np.zeros(4)).shape, read(np.float32(0)).shape) == ((4, 1), (1,))
    assert make_action_encoder(scalar)(np.zeros((4, 1), np.float32)).shape == (4,)


def test_a_space_that_cannot_be_flattened_gets_other_advice():
    with pytest.raises(ConfigurationError, match=r"only Box, .* are supported: write a gymnasium.ObservationWrapper"):
        to_space_spec(Sequence(OBS), ACTION, name="Env")


@pytest.mark.parametrize(
    ("space", "high"),
    [
        (Box(0, 255, (84, 84, 4), np.uint8), None),
        (Box(0, 10, (7, 7, 3), np.uint8), 10),
        (Box(0, np.full((7, 7, 3), [10, 5, 2]), (7, 7, 3), np.uint8), 10),
        (Box(0, 1, (3, 5, 5), np.uint8), 1),
        (Box(0, 0, (3,), np.uint8), 1),
        (Box(0, 9, (128,), np.uint8), 9),
        (Box(0, 255, (64, 64, 3), np.int32), 255),
        (Box(0, 9, (2, 2), np.int16), 9),
        (Box(0, 1000, (2, 2), np.int16), None),
        (Box(-1, 9, (2, 2), np.int16), None),
        (Box(0, 9, (4,), np.int64), None),
        (Box(0, 1, (64, 64, 3), np.float32), None),
        (Box(0, 255, (64, 64, 3), np.float32), 255),
        (Box(0, 255, (4,), np.float32), None),
        (Box(-np.inf, np.inf, (64, 64, 3), np.float32), None),
        (Box(0, 1, (5, 5, 3), np.bool_), None),
        (MultiBinary([2, 2]), None),
    ],
)
def test_bytes_and_images_say_what_they_are_divided_by(space, high):
    assert to_space_spec(space, ACTION, name="Env").get("obs_high") == high
