import builtins
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space

from datamodules.core.errors import ConfigurationError
from datamodules.vector.func_vector_env import TensorVectorEnv
from datamodules.vector.make_env import MIN_ENVS_FOR_VECTOR, env_backends, make_env, make_vector_env, probe_spaces
from tests.support.counting_env import Counting, CountingTensors

HERE = "tests.support.counting_env"


@pytest.fixture
def registered():
    """Ids of this test's own, removed afterwards."""
    before = dict(gym.registry)
    yield gym.register
    gym.registry.clear()
    gym.registry.update(before)


def test_few_environments_run_in_sync_and_many_in_the_vector_entry_point():
    few, many = (
        make_vector_env("CartPole-v1", MIN_ENVS_FOR_VECTOR - 1),
        make_vector_env("CartPole-v1", MIN_ENVS_FOR_VECTOR),
    )
    assert isinstance(few.envs, SyncVectorEnv)
    assert few.mode is AutoresetMode.SAME_STEP
    assert many.envs.spec.kwargs["vectorization_mode"] == "vector_entry_point"
    assert many.mode is AutoresetMode.NEXT_STEP


def test_async_takes_a_process_each():
    envs = make_vector_env("CartPole-v1", 2, backend="async")
    assert isinstance(envs.envs, AsyncVectorEnv)
    assert envs.reset(0)[0].shape == (2, 4)
    envs.close()


def test_the_time_limit_is_an_argument_of_the_environment():
    for backend in ("sync", "vector"):
        envs = make_vector_env("CartPole-v1", 2, backend=backend, env_kwargs={"max_episode_steps": 3})
        envs.reset(0)
        truncated = [envs.step(torch.tensor([0, 1])).truncated.all().item() for _ in range(3)]
        assert truncated == [False, False, True]


def test_a_class_of_tensors_runs_on_the_device():
    envs = make_vector_env(f"{HERE}.CountingTensors", 3, env_kwargs={"length": 7}, seed=2)
    assert isinstance(envs, TensorVectorEnv)
    assert envs.min_truncation_step == 7
    assert envs.reset()[0].shape == (3, 2)


def test_an_id_made_of_tensors_runs_on_the_device_unless_told_otherwise(registered):
    registered(
        "Counting-v0",
        entry_point=lambda tensor_env, length=4: Counting(length),
        kwargs={
            "tensor_env": f"{HERE}.CountingTensors",
            "length": 5,
        },
    )
    assert make_vector_env("Counting-v0", 2).env.length == 5
    assert make_vector_env("Counting-v0", 2, env_kwargs={"length": 6}).env.length == 6
    assert isinstance(make_vector_env("Counting-v0", 2, backend="sync").envs, SyncVectorEnv)


def test_a_class_of_gymnasium_s_is_an_environment():
    envs = make_vector_env(f"{HERE}.Counting", 2, env_kwargs={"length": 1})
    envs.reset(0)
    assert envs.step(torch.zeros(2, dtype=torch.int64)).terminated.all()


def test_probing_makes_one_environment_and_closes_it():
    closed = []
    Counting.close = lambda self: closed.append(self)
    try:
        spaces = probe_spaces(f"{HERE}.Counting")
    finally:
        del Counting.close
    assert spaces["obs_shape"] == (3,)
    assert len(closed) == 1
    assert not torch.cuda.is_initialized()


def test_probed_spaces_are_those_of_the_environments():
    for env in ("CartPole-v1", "Pendulum-v1", f"{HERE}.CountingTensors"):
        assert probe_spaces(env) == make_vector_env(env, 2).spaces


def test_an_unknown_id_is_answered_with_the_nearest():
    with pytest.raises(ConfigurationError, match=r"There is no environment 'cartpole-v7': did you mean CartPole-v1"):
        make_vector_env("cartpole-v7", 2)


def test_a_module_before_the_colon_registers_its_ids(tmp_path, monkeypatch, registered):
    source = f"import gymnasium\nfrom {HERE} import Counting\ngymnasium.register('Mine-v0', entry_point=Counting)\n"
    (tmp_path / "friend.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    assert make_vector_env("friend:Mine-v0", 2).num_envs == 2


def test_a_module_that_does_not_exist_is_named():
    with pytest.raises(ConfigurationError, match="needs the module nowhere, which cannot be imported: No module named"):
        make_vector_env("nowhere:Env-v0", 2)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"num_envs": 0}, "num_envs is 0; it must be at least 1"),
        ({"backend": "fast"}, "no backend 'fast': choose one of auto, device, sync, async, vector"),
        ({"backend": "device"}, "CartPole-v1 is not an on-device environment: .*, not device"),
        ({"env": "Pendulum-v1", "backend": "vector"}, "Pendulum-v1 has no vector entry point: .*, not vector"),
        (
            {"env": f"{HERE}.CountingTensors", "backend": "sync"},
            "not a Gymnasium environment: choose backend auto or device, not sync",
        ),
        ({"env": f"{HERE}.copied"}, "is not an environment"),
        (
            {"env": f"{HERE}.CountingTensors", "env_kwargs": {"size": 3}},
            r"CountingTensors takes no env_kwargs\.size: it takes length",
        ),
        (
            {"env_kwargs": {"sutton_reward": True}},
            r"CartPole-v1 takes no env_kwargs\.sutton_reward: did you mean sutton_barto_reward\?",
        ),
        ({"env_kwargs": {"tensor_env": "os.system"}}, "may not contain tensor_env"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence):
    with pytest.raises(ConfigurationError, match=sentence) as refused:
        make_vector_env(**({"env": "CartPole-v1", "num_envs": 2} | arguments))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("extra", "cure"),
    [("box2d", r"-e '\.\[box2d\]' in the project's folder"), ("toy-text", r"'gymnasium\[toy-text\]'")],
)
def test_a_missing_extra_says_how_to_install_it(registered, extra, cure):
    def lander(**kwargs):
        raise gym.error.DependencyNotInstalled(f'It is not installed, run `pip install "gymnasium[{extra}]"`')

    registered("Lander-v0", entry_point=lander)
    with pytest.raises(
        ConfigurationError, match=rf"Lander-v0 needs a package that is not installed: pip install {cure}\.$"
    ):
        probe_spaces("Lander-v0")


@pytest.mark.parametrize(
    "ask", [lambda: make_vector_env("Pong-v5", 2, backend="envpool"), lambda: probe_spaces("Pong-v5", None, "envpool")]
)
def test_without_envpool_its_backend_says_how_to_install_it(monkeypatch, ask):
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(
        ConfigurationError, match=r"needs the package envpool, .*: pip install -e '\.\[envpool\]' in the project"
    ):
        ask()


class Unmakeable(Counting):
    """Raises what it is told to while it is made."""

    def __init__(self, error: str, *message: str):
        raise getattr(builtins, error)(*message)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda env, kwargs: probe_spaces(env, kwargs, "sync"), r"Unmakeable \(backend sync\)"),
        (lambda env, kwargs: probe_spaces(env, kwargs), r"Unmakeable \(backend auto\)"),
        (
            lambda env, kwargs: make_vector_env(env, 2, backend="async", env_kwargs=kwargs),
            r"Unmakeable \(backend async\)",
        ),
        (lambda env, kwargs: make_env(env, kwargs), "Unmakeable"),
    ],
)
def test_the_backend_that_was_asked_for_is_named_if_an_environment_cannot_be_created(make, named):
    with pytest.raises(ConfigurationError, match=rf"{named} could not be created with env_kwargs .*: ValueError, "):
        make(f"{__name__}.Unmakeable", {"error": "ValueError"})


@pytest.mark.parametrize("error", ["NotImplementedError", "AssertionError", "ValueError", "RuntimeError", "KeyError"])
def test_an_environment_that_raises_without_a_message_is_refused_by_type_and_place(error):
    with pytest.raises(
        ConfigurationError, match=rf"could not be created with .*: {error}, raised in .*test_make_env.py, line \d+\.$"
    ):
        probe_spaces(f"{__name__}.Unmakeable", {"error": error})


class Codes(CountingTensors):
    spaces = CountingTensors.spaces | {"obs_dtype": "uint8"}
    obs_bounds = (0, 8)


def test_the_bounds_of_bytes_on_the_device_are_those_of_their_space():
    assert probe_spaces(f"{__name__}.Codes")["obs_high"] == 8
    assert "obs_high" not in probe_spaces("Snake-v0", {"observation": "planes"})


class PreprocessedVector(gym.vector.VectorEnv):
    """A vector entry point that shows something else than its environment, as that of Atari's games does."""

    metadata: dict[str, Any] = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, num_envs: int):
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = Box(0, 1, (7,), np.float32), Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(self, **_: Any) -> tuple[Any, dict]:
        return self.observation_space.sample(), {}


gym.register(
    "Preprocessed-v0",
    entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv",
    vector_entry_point=PreprocessedVector,
)


def test_auto_takes_no_vector_entry_point_that_shows_something_else():
    assert probe_spaces("Preprocessed-v0")["obs_shape"] == (4,)
    assert make_vector_env("Preprocessed-v0", 16).spaces["obs_shape"] == (4,)
    assert env_backends("Preprocessed-v0", 16) == ["sync", "async", "vector", "pool"]


def test_the_backend_vector_shows_what_its_entry_point_shows():
    spaces = probe_spaces("Preprocessed-v0", backend="vector")
    assert spaces["obs_shape"] == make_vector_env("Preprocessed-v0", 2, backend="vector").spaces["obs_shape"] == (7,)
