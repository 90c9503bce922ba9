"""A rendered episode is the one that its environment plays, with an image of every state."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput, PolicyOutput, State
from datamodules.rendering.episode import rendered_episode
from datamodules.vector.make_env import make_env, probe_spaces


class Constant:
    """A policy that takes the same action always, and counts its steps in its state."""

    def __init__(self, action: Any):
        self.action = torch.as_tensor(action)

    def initial_state(self, batch: int) -> State:
        return {"count": torch.zeros(batch)}

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        return torch.rand(shape, generator=generator)

    def act(self, inputs: PolicyInput, noise: Any = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        action = self.action.expand(1, *self.action.shape)
        return PolicyOutput(action, {}), {"count": inputs.state["count"] + 1}


def test_an_episode_is_that_of_the_environment() -> None:
    steps = [*rendered_episode("CartPole-v1", {}, Constant(1), seed=3, greedy=True, max_steps=500)]

    env = gymnasium.make("CartPole-v1", render_mode="rgb_array")
    obs, _ = env.reset(seed=3)
    for step in steps[:-1]:
        assert step.inputs.obs[0].tolist() == obs.tolist() and np.array_equal(step.image, env.render())
        obs, _, terminated, _, _ = env.step(step.action)
    assert terminated and steps[-1].output is None and steps[-1].step == len(steps) - 1
    assert steps[-1].episode_return == len(steps) - 1 == float(steps[-1].state["count"])
    assert [bool(step.inputs.episode_start) for step in steps[:2]] == [True, False]


@pytest.mark.parametrize(
    ("env", "kwargs"),
    [
        ("Snake-v0", {}),
        ("FourRooms-v0", {}),
        ("FetchAndDeliver-v0", {}),
        ("FourRooms-v0", {"rooms": 4}),
        ("KeyDoor-v0", {"rooms": 3, "start": 14}),
        ("Horde-v0", {}),
        ("Duffing-v0", {}),
        ("Lorenz-v0", {}),
        ("Trading-v0", {"symbol": "WALK"}),
        ("datamodules.envs.four_rooms.env.FourRooms", {}),
    ],
)
def test_on_device_environments_are_rendered(env: str, kwargs: dict[str, Any]) -> None:
    spaces = probe_spaces(env, kwargs)
    action = torch.tensor(spaces["action_high"]) if spaces["action_type"] == "continuous" else 0

    steps = [*rendered_episode(env, kwargs, Constant(action), seed=1, greedy=False, max_steps=4)]

    images = [step.image for step in steps]
    assert all(image is not None and image.dtype == np.uint8 and image.ndim == 3 for image in images)
    assert any(not np.array_equal(images[0], image) for image in images[1:])


@pytest.mark.parametrize("env", ["FourRooms-v0", "Duffing-v0", "Trading-v0"])
def test_on_device_environments_are_rendered_as_text(env: str) -> None:
    one = gymnasium.make(env, render_mode="ansi", disable_env_checker=True)
    one.reset(seed=0)

    assert isinstance(one.render(), str)


def test_an_environment_without_images_is_played_without() -> None:
    steps = [
        *rendered_episode("tests.support.counting_env.Counting", {}, Constant(0), seed=1, greedy=True, max_steps=2)
    ]

    assert [step.image for step in steps] == [None] * 3


def test_another_render_mode_of_the_arguments_is_kept() -> None:
    assert make_env("CartPole-v1", {"render_mode": None}).render_mode is None
    assert make_env("CartPole-v1").render_mode == "rgb_array"


def test_an_environment_that_cannot_be_rendered_is_refused_with_the_reason() -> None:
    episode = rendered_episode(
        "tests.support.faulty_envs.Unrenderable", {}, Constant(0), seed=1, greedy=True, max_steps=2
    )

    with pytest.raises(ConfigurationError, match=r"Unrenderable cannot be rendered \(OSError: no EGL\): .* MUJOCO_GL"):
        next(episode)
