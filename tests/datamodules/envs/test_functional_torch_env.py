import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

import datamodules.envs
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import SpaceSpec
from datamodules.envs.functional_torch_env import FunctionalTorchEnv, action_space, action_tensor

SNAKE = "datamodules.envs.snake.env.Snake"


def spaces(kind, sizes=(), low=(), high=(), start=()) -> SpaceSpec:
    return SpaceSpec(
        obs_shape=(3,),
        obs_dtype="float32",
        action_type=kind,
        action_sizes=list(sizes),
        action_low=list(low),
        action_high=list(high),
        action_start=list(start),
        num_agents=1,
    )


@pytest.mark.parametrize("observation", ["planes", "grid", "features"])
def test_snake_passes_gymnasiums_check(observation):
    env = gymnasium.make("Snake-v0", observation=observation)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_make_passes_arguments_on():
    env = gymnasium.make("Snake-v0", dim=12)
    assert env.reset(seed=0)[0].shape == (3, 12, 12)
    assert datamodules.envs.__doc__


def test_a_seed_repeats_the_episodes():
    env = gymnasium.make("Snake-v0", observation="grid")
    first, again = (np.stack([env.reset(seed=7)[0]] + [env.reset()[0] for _ in range(5)]) for _ in range(2))
    assert np.array_equal(first, again)
    assert len({obs.tobytes() for obs in first}) > 1


def test_make_vec_resets_in_the_same_step_and_keeps_the_final_observation():
    envs = gymnasium.make_vec("Snake-v0", num_envs=4, observation="features")
    assert envs.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.SAME_STEP
    envs.reset(seed=0)
    for _ in range(12):
        obs, _, terminated, _, info = envs.step(np.array([1, 1, 1, 0]))
        if terminated.any():
            break
    row = int(terminated.argmax())
    assert np.array_equal(info["_final_obs"], terminated)
    assert info["final_obs"][row].shape == (19,) and info["final_info"]["snake_length"][row] == 3
    assert obs[row][1] == 1.0 and not np.array_equal(obs[row], info["final_obs"][row])


def test_vector_and_single_agree_on_spaces():
    envs, env = gymnasium.make_vec("Snake-v0", num_envs=3), gymnasium.make("Snake-v0")
    assert envs.single_observation_space == env.observation_space
    assert envs.single_action_space == env.action_space
    assert envs.reset()[0] in envs.observation_space


def test_renders_in_both_modes():
    picture = gymnasium.make("Snake-v0", render_mode="rgb_array")
    lines = gymnasium.make_vec("Snake-v0", num_envs=2, render_mode="ansi")
    picture.reset(), lines.reset()
    assert picture.render().shape == (160, 160, 3)
    assert [len(text.split("\n")) for text in lines.render()] == [10, 10]


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        (spaces("discrete", [3], start=[2]), gymnasium.spaces.Discrete(3, start=2)),
        (spaces("multidiscrete", [3, 4], start=[0, 1]), gymnasium.spaces.MultiDiscrete([3, 4], start=[0, 1])),
        (spaces("binary", [2, 2]), gymnasium.spaces.MultiBinary(2)),
        (spaces("continuous", low=[-1, 0], high=[1, 2]), gymnasium.spaces.Box(np.float32([-1, 0]), np.float32([1, 2]))),
    ],
)
def test_action_spaces_are_gymnasiums(described, expected):
    assert action_space(described) == expected


def test_discrete_actions_count_from_zero_inside():
    assert action_tensor(np.array([2, 4]), spaces("discrete", [3], start=[2])).tolist() == [0, 2]
    assert action_tensor(np.array([[0, 1]]), spaces("multidiscrete", [3, 4], start=[0, 1])).tolist() == [[0, 0]]
    assert action_tensor(np.array([[0.5]]), spaces("continuous")).dtype == torch.float32


@pytest.mark.parametrize(
    ("path", "mode", "sentence"),
    [
        ("datamodules.envs.snake.env.Adder", None, "cannot be imported"),
        ("nowhere.Snake", None, "cannot be imported"),
        (SNAKE, "human", "choose rgb_array or ansi"),
    ],
)
def test_a_wrong_path_or_mode_is_one_sentence(path, mode, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        FunctionalTorchEnv(path, mode)
    with pytest.raises(ConfigurationError, match="at least 1"):
        gymnasium.make_vec("Snake-v0", num_envs=0)
