"""Wrappers act with every backend that steps environments one by one; the others refuse them."""

from functools import partial
from typing import Any

import gymnasium as gym
import pytest
import torch
from gymnasium.wrappers import (
    ClipReward,
    FlattenObservation,
    FrameStackObservation,
    GrayscaleObservation,
    RepeatAction,
    ResizeObservation,
    TimeLimit,
)

from datamodules.core.errors import ConfigurationError
from datamodules.vector.make_env import make_vector_env, probe_spaces
from tests.support.lives_env import Lives  # noqa: F401  (named by its path)

LIVES = "tests.support.lives_env.Lives"
STACK = partial(FrameStackObservation, stack_size=3)
CAMERA = (GrayscaleObservation, partial(ResizeObservation, shape=(12, 16)), STACK)
HALF = partial(ClipReward, min_reward=0, max_reward=0.5)


@pytest.mark.parametrize("backend", ["auto", "sync", "async", "pool"])
def test_wrappers_act_with_every_backend(backend: str) -> None:
    wrappers = (partial(RepeatAction, num_repeats=2), HALF)
    envs = make_vector_env("CartPole-v1", 8, backend=backend, wrappers=wrappers)
    try:
        envs.reset(0)
        rewards = [envs.step(torch.zeros(8, dtype=torch.int64)).reward.clone() for _ in range(3)]
    finally:
        envs.close()
    assert torch.stack(rewards).unique().tolist() == [0.5]


def test_summed_rewards_of_a_repeated_action_stop_at_the_end_of_the_episode() -> None:
    envs = make_vector_env(LIVES, 1, env_kwargs={"lives": 1}, wrappers=[partial(RepeatAction, num_repeats=5)])
    envs.reset(0)

    step = envs.step(torch.zeros(1, dtype=torch.int64))

    assert step.reward.item() == 10 and step.terminated.item()


def test_images_are_grey_and_stacked() -> None:
    spaces = probe_spaces("tests.support.image_envs.Camera", None, "sync", (GrayscaleObservation, STACK))
    assert spaces["obs_shape"] == (3, 40, 48) and spaces["obs_dtype"] == "uint8"


def test_images_are_resized() -> None:
    pytest.importorskip("cv2")
    spaces = probe_spaces("tests.support.image_envs.Camera", None, "sync", CAMERA)
    assert spaces["obs_shape"] == (3, 12, 16) and spaces["obs_dtype"] == "uint8"


def test_a_time_limit_truncates() -> None:
    envs = make_vector_env("CartPole-v1", 2, wrappers=[partial(TimeLimit, max_episode_steps=3)])
    envs.reset(0)

    truncated = [envs.step(torch.zeros(2, dtype=torch.int64)).truncated.tolist() for _ in range(3)]

    assert truncated == [[False, False], [False, False], [True, True]]


@pytest.mark.parametrize(
    ("env", "backend", "said"),
    [
        ("Snake-v0", "auto", "Snake-v0, because its environments are stepped as tensors: choose backend sync, async"),
        ("CartPole-v1", "vector", "CartPole-v1, because its vector entry point steps all copies at once"),
        ("CartPole-v1", "envpool", "EnvPool steps its environments in C\\+\\+"),
        ("tests.datamodules.vector.test_wrapped_envs.OnDevice", "auto", "stepped as tensors: remove them"),
    ],
)
def test_environments_that_are_not_stepped_one_by_one_refuse_wrappers(env: str, backend: str, said: str) -> None:
    for make in (partial(make_vector_env, num_envs=8), probe_spaces):
        with pytest.raises(ConfigurationError, match=rf"data.wrappers \(FlattenObservation\) cannot .*{said}"):
            make(env, backend=backend, wrappers=[FlattenObservation])


class OnDevice:
    """Looks like a TorchFuncEnv."""

    initial = transition = observation = info = staticmethod(lambda: None)


def test_an_on_device_environment_takes_wrappers_in_its_gymnasium_form() -> None:
    wrapped: Any = {"backend": "sync", "wrappers": [FlattenObservation]}
    plain = probe_spaces("Snake-v0")
    assert probe_spaces("Snake-v0", **wrapped)["obs_shape"] == (torch.Size(plain["obs_shape"]).numel(),)


def test_wrapped_environments_render() -> None:
    envs = make_vector_env(LIVES, 1, backend="sync", env_kwargs={"render_mode": "rgb_array"}, wrappers=[HALF])
    envs.reset(0)
    frames: Any = envs.envs.render()  # type: ignore[attr-defined]
    assert frames[0].shape == (8, 8, 3)
    assert isinstance(envs.envs.envs[0], gym.Wrapper)  # type: ignore[attr-defined]
