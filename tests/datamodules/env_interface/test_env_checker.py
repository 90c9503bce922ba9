import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from datamodules.core.errors import ConfigurationError
from datamodules.env_interface.env_checker import probe_env
from datamodules.rollout import RolloutDataModule
from tests.support.counting_env import Counting

ZEROS = np.zeros(3, np.float32)


class Broken(Counting):
    """Returns what it is told to, or what is right."""

    def __init__(self, reset=None, step=None, observation_space=None):
        super().__init__()
        self.returns = {"reset": reset, "step": step}
        self.observation_space = observation_space or Counting.observation_space

    def reset(self, *, seed=None, options=None):
        right = super().reset(seed=seed)
        return self.returns["reset"] or right

    def step(self, action):
        right = super().step(action)
        return self.returns["step"] or right


class NoActions(gym.Env):
    observation_space = Counting.observation_space


class NoSeed(Counting):
    def reset(self):
        return super().reset()


class Raising(Counting):
    def step(self, action):
        raise ValueError("the wheels came off")


class OnlyRight(Counting):
    def info(self):
        return {"action_mask": np.array([False, True])}


@pytest.mark.parametrize(
    ("returns", "sentence"),
    [
        ({"reset": [1.0, 2.0, 3.0]}, r"returns one list from its reset: a reset returns \(obs, info\)"),
        ({"step": (ZEROS, 1.0, False, {})}, r"returns 4 values from its step: .* terminated, truncated, info\)"),
        (
            {"reset": (np.zeros(4), {})},
            r"returns an observation of shape \(4,\) after a reset: its obs.* says \(3,\)",
        ),
        ({"step": ("left", 1.0, False, False, {})}, "returns 'left' after a step: return numbers"),
        ({"reset": (ZEROS + np.nan, {})}, "returns NaN or infinite numbers after a reset: return finite"),
        ({"reset": (ZEROS - np.inf, {})}, "returns NaN or infinite numbers after a reset: return finite"),
        ({"step": (ZEROS, np.nan, False, False, {})}, r"gives nan as reward: .* a finite number"),
        ({"step": (ZEROS, np.inf, False, False, {})}, r"gives inf as reward: .* a finite number"),
        ({"step": (ZEROS, np.ones(1), False, False, {})}, r"gives array\(\[1.\]\) as reward: .* and no array"),
        (
            {"step": (ZEROS, np.ones(2), False, False, {})},
            r"gives 2 rewards at once, .*: name a wrapper",
        ),
        (
            {"step": (ZEROS, 1.0, np.array([True]), False, {})},
            r"gives array\(\[ True\]\) as terminated: .* True or False",
        ),
        ({"step": (ZEROS, 1.0, None, False, {})}, "gives None as terminated: .* True or False"),
        ({"reset": (4, {}), "observation_space": Discrete(4)}, r"returns 4 after a reset: its .* is Discrete\(4\)"),
        (
            {"reset": (ZEROS + 0.5, {}), "observation_space": Box(0, 255, (3,), np.uint8)},
            "returns float32 numbers after a reset, which its observation_space of uint8 cuts",
        ),
    ],
)
def test_a_breach_is_told_in_one_sentence(returns, sentence):
    with pytest.raises(ConfigurationError, match=f"^mine.Env {sentence}.*\\.$"):
        probe_env(Broken(**returns), "mine.Env")


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        (NoActions(), "has no action_space: set self.action_space"),
        (NoSeed(), r"takes no seed and no options in its reset: write reset\(self, \*, seed=None, options=None\)"),
    ],
)
def test_what_is_missing_is_named(env, sentence):
    with pytest.raises(ConfigurationError, match=sentence):
        probe_env(env, "mine.Env")


def test_a_breach_is_found_inside_of_wrappers_that_would_stumble_over_it():
    env = gym.wrappers.TimeLimit(gym.wrappers.OrderEnforcing(Broken(step=(ZEROS, 1.0, False, {}))), 5)
    with pytest.raises(ConfigurationError, match="returns 4 values from its step"):
        probe_env(env, "mine.Env")


def test_numbers_that_survive_may_have_another_dtype():
    spaces = probe_env(Broken(reset=(np.zeros(3), {}), step=([0, 0, 0], 1, 0, False, {})), "mine.Env")
    assert spaces["obs_dtype"] == "float32"


def test_a_masked_environment_is_only_asked_for_what_it_allows():
    env = OnlyRight()
    probe_env(env, "mine.Env")
    assert env.actions == [1]


def test_an_error_of_the_environment_s_own_is_no_breach():
    with pytest.raises(RuntimeError, match=r"mine.Env raised in its first reset or step") as caught:
        probe_env(Raising(), "mine.Env")
    assert "the wheels came off" in str(caught.value.__cause__)


@pytest.mark.parametrize("backend", ["sync", "async", "vector", "pool"])
def test_a_run_is_refused_before_copies_are_made_whatever_steps_them(backend):
    with pytest.raises(ConfigurationError, match=f"{__name__}.NoActions has no action_space"):
        RolloutDataModule(env=f"{__name__}.NoActions", backend=backend)
