"""Observations of several parts come out of every backend alike, each part in its own dtype."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, Text
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from datamodules.core.errors import ConfigurationError
from datamodules.core.protocols import VectorEnv
from datamodules.env_interface.obs_parts import split_observation, split_space
from datamodules.env_interface.spaces import to_space_spec
from datamodules.vector.gymnasium_adapter import GymnasiumVectorAdapter
from datamodules.vector.make_env import make_vector_env, probe_spaces
from datamodules.vector.sync_vector_env import SerialVectorEnv
from tests.support.parts_env import SPACE, Parts, expected

CPU = torch.device("cpu")
BACKENDS = ["sync", "async", "pool", "restart", *AutoresetMode]
WHOLE = "a vector environment of nested observations"


def split(**kwargs: Any) -> gym.Env:
    return split_observation(Parts(**kwargs), "parts")


@contextmanager
def made(backend: Any, rows: int = 2, **kwargs: Any) -> Iterator[VectorEnv]:
    if isinstance(backend, AutoresetMode):
        vector: gym.vector.VectorEnv = SerialVectorEnv([partial(split, **kwargs)] * rows, autoreset_mode=backend)
        envs: VectorEnv = GymnasiumVectorAdapter(vector, device=CPU)
    elif backend == WHOLE:
        vector = SyncVectorEnv([partial(Parts, **kwargs)] * rows, autoreset_mode=AutoresetMode.SAME_STEP)
        envs = GymnasiumVectorAdapter(vector, device=CPU)
    else:
        where = {"backend": "async", "restart": True} if backend == "restart" else {"backend": backend}
        envs = make_vector_env("tests.support.parts_env.Parts", rows, env_kwargs=kwargs, **where)
    try:
        yield envs
    finally:
        envs.close()


def check(obs: Any, row: int, episode: int, t: int) -> None:
    for name, value in expected(episode, t).items():
        found = obs[name][row]
        assert torch.equal(found, torch.full_like(found, value) if name == "image" else torch.tensor(value).to(found))


@pytest.mark.parametrize(
    ("backend", "reuse"), [*((each, reuse) for each in BACKENDS for reuse in (False, True)), (WHOLE, False)], ids=str
)
def test_every_backend_gives_the_parts_masks_and_last_observations_of_the_environment(backend: Any, reuse: bool):
    with made(backend, length=3, reuse=reuse) as envs:
        obs, info = envs.reset(0)
        dtypes = {name: str(part.dtype).removeprefix("torch.") for name, part in obs.items()}
        assert dtypes == {name: part["dtype"] for name, part in envs.spaces["obs_parts"].items()}
        assert info["action_mask"].tolist() == [[True, False]] * 2
        episode = t = 0
        for _ in range(9):
            step = envs.step(torch.ones(2, dtype=torch.int64))
            if not step.valid.all():
                episode, t = episode + 1, 0
            else:
                t += 1
                if step.truncated.all():
                    for row in range(2):
                        check(step.final_obs, row, episode, t)
                    if backend is not AutoresetMode.NEXT_STEP:
                        episode, t = episode + 1, 0
            for row in range(2):
                check(step.obs, row, episode, t)
            assert step.info["action_mask"].tolist() == [[t % 2 == 0, t % 2 == 1]] * 2
        assert episode >= 2


@pytest.mark.parametrize("backend", ["sync", AutoresetMode.NEXT_STEP], ids=str)
def test_episodes_cut_by_a_limit_keep_their_last_parts(backend: Any):
    with made(backend, length=100) as envs:
        envs.limit(2)
        envs.reset(0)
        envs.step(torch.zeros(2, dtype=torch.int64))
        step = envs.step(torch.zeros(2, dtype=torch.int64))
        assert step.truncated.all()
        check(step.final_obs, 1, 0, 2)
        check(step.obs, 1, 1, 0)


def test_spaces_of_the_parts_say_dtype_bound_and_choices():
    with pytest.warns(UserWarning, match=r"has observations with mission \(Text\), .* dropped") as warned:
        spaces = probe_spaces("tests.support.parts_env.Parts")
    assert len([each for each in warned if "mission" in str(each.message)]) == 1
    assert (spaces["obs_shape"], spaces["obs_dtype"]) == ((), "dict")
    assert spaces["obs_parts"] == {
        "agent.position": {"shape": (2,), "dtype": "float32"},
        "agent.room": {"shape": (), "dtype": "int64", "sizes": [9]},
        "image": {"shape": (6, 6, 3), "dtype": "uint8"},
        "pair.0": {"shape": (2,), "dtype": "int64", "sizes": [3, 4]},
        "pair.1": {"shape": (3,), "dtype": "int8"},
    }


def test_parts_that_may_not_be_dropped_are_refused():
    with pytest.raises(ConfigurationError, match=r"mission \(Text\), .* data.drop_unsupported_obs is false: set"):
        probe_spaces("tests.support.parts_env.Parts", drop_unsupported_obs=False)


def test_one_part_left_is_a_tensor_as_it_would_be_alone():
    box, action = Box(-1, 1, (3,), np.float32), Discrete(2)
    space = gym.spaces.Dict({"action_mask": MultiBinary(2), "observation": box, "name": Text(3)})
    assert to_space_spec(space, action, name="x") == to_space_spec(box, action, name="x")
    assert to_space_spec(gym.spaces.Dict({"only": Discrete(3)}), action, name="x")["obs_shape"] == (3,)


def test_without_a_part_of_numbers_and_with_names_twice_the_environment_is_refused():
    with pytest.raises(ConfigurationError, match=r"x has observations without a Box, .* \(name: Text\): wrap it"):
        split_space(gym.spaces.Dict({"name": Text(3)}), "x")
    twice = gym.spaces.Dict({"a.b": Discrete(2), "a": gym.spaces.Dict({"b": Discrete(2)})})
    with pytest.raises(ConfigurationError, match=r"x has two observations named a\.b: rename a key"):
        split_space(twice, "x")


class Wrong(Parts):
    """Leaves a part out, or returns another shape, from the second step on."""

    def __init__(self, how: str, since: int = 0):
        super().__init__()
        self.how, self.since = how, since

    def shown(self) -> Any:
        obs = super().shown()
        if self.t < self.since:
            return obs
        if self.how == "missing":
            del obs["image"]
        else:
            obs["agent"]["position"] = np.zeros(3, np.float32)
        return obs


@pytest.mark.parametrize("backend", ["sync", "async", "pool"])
@pytest.mark.parametrize(
    ("how", "words"),
    [("missing", "without the part image"), ("shape", r"shape \(3,\).*position|position.* of shape \(3,\)")],
)
def test_an_observation_that_breaks_its_space_is_one_sentence(backend: str, how: str, words: str):
    name = f"{__name__}.Wrong"
    with pytest.raises(ConfigurationError, match=words):
        probe_spaces(name, {"how": how})
    envs = make_vector_env(name, 2, backend=backend, env_kwargs={"how": how, "since": 2})
    try:
        envs.reset(0)
        with pytest.raises(ConfigurationError, match=words):
            for _ in range(3):
                envs.step(torch.zeros(2, dtype=torch.int64))
    finally:
        envs.close()


def test_the_space_of_the_tests_is_nested():
    assert split_space(SPACE, "x").is_nested and not split_space(split_space(SPACE, "x").space, "x").is_nested
