import multiprocessing
import sys
from contextlib import closing
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.signals import SignalExit
from datamodules.rollout import RolloutDataModule
from datamodules.vector.async_vector_env import SubprocVectorEnv
from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter
from datamodules.vector.make_env import probe_spaces
from datamodules.vector.sync_vector_env import SerialVectorEnv
from datamodules.worker_pool.vector_env import WorkerPoolVectorEnv
from tests.support.counting_env import Breaking, Counting, CountingTensors
from tests.support.small_runs import fitted

CPU = torch.device("cpu")
BACKENDS = ("sync", "async", "pool")
ZEROS = np.zeros(3, np.float32)


class Stumbling(Counting):
    """Its own code raises what a breach of the contract would."""

    def step(self, action):
        obs, reward = super().step(action)
        return obs, reward, False, False, {}


def made(backend: str, make) -> GymnasiumVectorAdapter | WorkerPoolVectorEnv:
    if backend == "pool":
        return WorkerPoolVectorEnv([make] * 2, num_workers=1, device=CPU, name="mine.Env")
    envs = SerialVectorEnv([make] * 2) if backend == "sync" else SubprocVectorEnv([make] * 2, name="mine.Env")
    return GymnasiumVectorAdapter(envs, device=CPU, name="mine.Env")


def played(backend: str, make, steps: int = 5) -> None:
    with closing(made(backend, make)) as envs:
        envs.reset(0)
        for _ in range(steps):
            envs.step(torch.zeros(2, dtype=torch.int64))


@pytest.fixture(autouse=True)
def no_orphans():
    yield
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("returns", "what"),
    [
        ({"step": (np.zeros(4), 1.0, False, False, {})}, r"shape \(4,\) into shape \(3,\)"),
        ({"step": ("left", 1.0, False, False, {})}, "'left'"),
        ({"step": (ZEROS, 1.0, False, {})}, "expected 5, got 4"),
        ({"step": (1.0, 1.0, False, False, {})}, r"1.0 of shape \(\) into shape \(3,\)"),
        ({"step": (ZEROS[:1], 1.0, True, False, {})}, r"shape \(1,\) into shape \(3,\)"),
        ({"reset": (ZEROS[:1], {})}, r"shape \(1,\) into shape \(3,\)"),
        ({"reset": (ZEROS, {}, 1)}, "expected 2"),
    ],
)
def test_a_breach_in_the_middle_of_a_run_is_told_in_one_sentence(backend, returns, what):
    sentence = rf"^mine.Env returned invalid values .* \(.*{what}.*\): let .* step \(obs, reward, .* of shape \(3,\)\.$"
    with pytest.raises(ConfigurationError, match=sentence):
        played(backend, partial(Breaking, **returns))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_same_error_from_the_environment_s_own_code_keeps_its_traceback(backend):
    with pytest.raises((ValueError, RuntimeError), match=r"too many values to unpack \(expected 2\)") as caught:
        played(backend, Stumbling)
    assert not isinstance(caught.value, ConfigurationError)


class Exiting(Counting):
    """Its own code ends the program."""

    def step(self, action):
        raise SystemExit(0)


class ExitingWhenMade(Counting):
    def __init__(self):
        sys.exit()


class ExitingTensors(CountingTensors):
    """Its own code ends the program."""

    def transition(self, state, action, noise):
        raise SystemExit(0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_environment_that_exits_ends_in_an_error(backend):
    with pytest.raises(RuntimeError, match=r"SystemExit[:(] ?0"):
        played(backend, Exiting)


def test_the_exit_of_a_signal_is_no_error_of_the_environment_that_it_came_in():
    class Signalled(Counting):
        def step(self, action):
            raise SignalExit(15)

    with pytest.raises(SignalExit) as left:
        played("sync", Signalled)
    assert left.value.code == 143


@pytest.mark.parametrize("env", ["Exiting", "ExitingWhenMade"])
def test_an_environment_that_exits_where_its_spaces_are_looked_at_ends_in_an_error(env):
    with pytest.raises(RuntimeError, match=rf"{env} raised SystemExit\((0|None)\)"):
        probe_spaces(f"{__name__}.{env}")


def test_an_environment_of_tensors_that_exits_ends_in_an_error(tmp_path):
    data = RolloutDataModule(f"{__name__}.ExitingTensors", num_envs=2, rollout_length=4, total_env_steps=80)
    with pytest.raises(RuntimeError, match=r"raised SystemExit\(0\)"):
        fitted(tmp_path, data)


def test_a_breach_inside_of_wrappers_is_the_environment_s():
    with pytest.raises(ConfigurationError, match="expected 5, got 4"):
        played("sync", lambda: gym.wrappers.TimeLimit(Breaking(step=(ZEROS, 1.0, False, {})), 9))


class Broadcasting(SerialVectorEnv):
    """Replaces one of the things that it returns."""

    changes: dict

    def step(self, actions):
        answer = dict(zip(("obs", "reward", "terminated", "truncated", "infos"), super().step(actions), strict=True))
        return tuple((answer | self.changes).values())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("obs", np.zeros((1, 3))),
        ("obs", ZEROS),
        ("reward", 1.0),
        ("terminated", False),
        ("truncated", np.zeros(1, bool)),
    ],
)
def test_what_numpy_would_broadcast_from_a_vector_environment_is_refused(name, value):
    envs = Broadcasting([Counting] * 2)
    envs.changes = {name: value}
    adapted = GymnasiumVectorAdapter(envs, device=CPU, name="mine.Env")
    adapted.reset(0)
    with pytest.raises(
        ConfigurationError, match=r"^mine.Env returned invalid values .*cannot put .* of shape .* into shape \(2,.*\)"
    ):
        adapted.step(torch.zeros(2, dtype=torch.int64))


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_action_mask_of_one_number_is_refused(backend):
    class OneMask(Counting):
        def info(self):
            return {"action_mask": np.ones(1, bool)}

    with pytest.raises(ConfigurationError, match=r"action_mask of shape \(.*1,?\) into shape \(.*2,?\)"):
        played(backend, OneMask)
