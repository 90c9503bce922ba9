"""Wrappers of a configuration: applied in order, refused with a reason, and saved as plain data."""

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation, NormalizeObservation, NormalizeReward, RepeatAction, TimeLimit

from datamodules.core.errors import ConfigurationError
from datamodules.wrappers import EpisodicLife
from datamodules.wrappers.apply_wrappers import make_wrapped_env, plain_wrappers, resolve_wrappers

CARTPOLE = gym.spec("CartPole-v1")


def test_the_first_wrapper_is_the_innermost() -> None:
    env = make_wrapped_env(CARTPOLE, [partial(TimeLimit, max_episode_steps=5), FlattenObservation], {})

    assert isinstance(env, FlattenObservation) and isinstance(env.env, TimeLimit)
    assert env.env._max_episode_steps == 5


def test_a_wrapper_that_does_not_fit_is_named_with_its_reason() -> None:
    resize = partial(gym.wrappers.ResizeObservation, shape=(8, 8))
    with pytest.raises(
        ConfigurationError, match=r"wrapper ResizeObservation cannot be applied to CartPole-v1: .*image"
    ):
        make_wrapped_env(CARTPOLE, [resize], {})


def test_what_makes_no_environment_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"makes a list of CartPole-v1, not a gymnasium.Env"):
        make_wrapped_env(CARTPOLE, [lambda env: [env]], {})  # type: ignore[arg-type, return-value, list-item]


@pytest.mark.parametrize(
    ("setting", "wrapper", "said"),
    [
        ("wrappers", NormalizeObservation, "running statistics in every copy.*model.normalize_obs"),
        ("train_wrappers", NormalizeObservation, "running statistics"),
        ("wrappers", NormalizeReward, "move it to data.train_wrappers"),
        ("wrappers", gym.wrappers.Autoreset, "the backends reset"),
        ("wrappers", {"class_path": "TimeLimit"}, "in Python give wrapper classes"),
    ],
)
def test_wrappers_that_would_train_something_else_are_refused(setting: str, wrapper: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"data\.{setting} contains .*{said}"):
        resolve_wrappers([wrapper], setting)


def test_rewards_may_be_normalised_in_training() -> None:
    assert resolve_wrappers([NormalizeReward], "train_wrappers") == (NormalizeReward,)


def test_plain_data_has_the_paths_and_arguments_of_a_config() -> None:
    plain = plain_wrappers([partial(RepeatAction, num_repeats=2), gym.wrappers.GrayscaleObservation, EpisodicLife])

    assert plain == [
        {"class_path": "gymnasium.wrappers.RepeatAction", "init_args": {"num_repeats": 2}},
        {"class_path": "gymnasium.wrappers.GrayscaleObservation", "init_args": {"keep_dim": False}},
        {"class_path": "datamodules.wrappers.EpisodicLife"},
    ]


def test_arrays_and_the_parsers_settings_become_plain_data() -> None:
    array = partial(gym.wrappers.RescaleAction, min_action=np.float32([-1]), max_action=np.float32(1))
    parsed = {"class_path": "a.B", "init_args": {"weight": np.array([0.5, 0.5]), "shape": (8, 8)}}

    assert plain_wrappers([array, parsed]) == [
        {"class_path": "gymnasium.wrappers.RescaleAction", "init_args": {"min_action": [-1.0], "max_action": 1.0}},
        {"class_path": "a.B", "init_args": {"weight": [0.5, 0.5], "shape": [8, 8]}},
    ]
