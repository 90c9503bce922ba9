"""What an environment's name may stand for beside single environments: several agents, and vectors only."""

import importlib.util
from contextlib import suppress
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest
import torch
from gymnasium.envs.registration import load_env_creator

from datamodules.core.arguments import signature
from datamodules.core.errors import ConfigurationError
from datamodules.multi_agent.tensor_vector_env import MultiAgentTensorVectorEnv
from datamodules.multi_agent.vector_adapter import MultiAgentVectorAdapter
from datamodules.vector import resolve_env as resolving
from datamodules.vector.make_env import make_vector_env, probe_spaces
from datamodules.vector.resolve_env import resolve_env
from tests.support import vector_only_env
from tests.support.counting_env import copied

RELAY = "tests.support.parallel_env.Relay"
NEEDS_MPE2 = pytest.mark.skipif(importlib.util.find_spec("mpe2") is None, reason="mpe2 is not installed")


def test_a_parallel_environment_is_named_by_its_class() -> None:
    envs = make_vector_env(RELAY, 4, env_kwargs={"lengths": [2, 3]})
    assert isinstance(envs, MultiAgentVectorAdapter)
    assert envs.spaces == probe_spaces(RELAY, {"lengths": [2, 3]})
    assert envs.spaces["num_agents"] == 2
    assert len(envs.reset(0)[0]) == 8


def test_an_on_device_environment_of_several_agents_is_named_by_its_class() -> None:
    envs = make_vector_env("tests.support.parallel_env.RelayTensors", 4)
    assert isinstance(envs, MultiAgentTensorVectorEnv)
    assert len(envs.reset(0)[0]) == 12


@NEEDS_MPE2
def test_a_pettingzoo_environment_is_named_by_its_module() -> None:
    kwargs = {"N": 2, "max_cycles": 3, "continuous_actions": False}
    assert probe_spaces("mpe2.simple_spread_v3", kwargs)["num_agents"] == 2
    envs = make_vector_env("mpe2.simple_spread_v3", 2, env_kwargs=kwargs)
    envs.reset(0)
    steps = [copied(envs.step(torch.zeros(4, dtype=torch.int64))) for _ in range(4)]
    assert [bool(step.truncated.all()) for step in steps] == [False, False, True, False]
    assert all(step.valid.all() for step in steps)
    assert envs.agent_names == ("agent_0", "agent_1")


@NEEDS_MPE2
@pytest.mark.parametrize("name", ["simple_tag_v3", "simple_speaker_listener_v4", "simple_crypto_v3"])
def test_agents_of_different_sizes_are_padded(name: str) -> None:
    envs = make_vector_env(f"mpe2.{name}", 1, env_kwargs={"max_cycles": 3})
    agents = envs.spaces["num_agents"]
    _, masks = envs.reset(0)
    for _ in range(4):
        step = envs.step(masks["action_mask"].int().argmax(1) if masks else torch.zeros(agents, dtype=torch.int64))
        masks = step.info


def test_an_environment_without_simultaneous_actions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("chess_v6")
    module.raw_env = object  # type: ignore[attr-defined]
    monkeypatch.setattr(resolving, "_imported", lambda *_: SimpleNamespace(__name__="games", chess_v6=module))
    with pytest.raises(ConfigurationError, match=r"games\.chess_v6 has no parallel_env: its agents act one after"):
        resolving.resolve_env("games.chess_v6")


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ("mpe2/simple_spread_v3", "named by its module, mpe2.simple_spread_v3"),
        ("tests.support.parallel_env.LENGTHS", "is not an environment: name a class"),
        ("tests.support.parallel_env.Nothing", "has no `Nothing`: choose from Relay, RelayTensors"),
        ("tests.support.parallel_env.Rely", "has no `Rely`: did you mean `Relay`?"),
        ("tests.app.conftest.Nothing", "is not an environment: name a class"),
    ],
)
def test_other_names_are_refused_with_advice(env: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        resolving.resolve_env(env)


@pytest.mark.parametrize("backend", ["async", "pool", "vector", "device"])
def test_a_parallel_environment_is_stepped_in_this_process(backend: str) -> None:
    with pytest.raises(ConfigurationError, match=f"stepped together in this process: choose .* not {backend}"):
        make_vector_env(RELAY, 2, backend=backend)


class ThreeResults:
    """Returns three values from its step."""

    possible_agents = ("one", "two")
    agents = ("one", "two")

    def observation_space(self, agent: str) -> gym.Space:
        return gym.spaces.Box(0, 1, (1,))

    def action_space(self, agent: str) -> gym.Space:
        return gym.spaces.Box(-1, 1, (1,))

    def reset(self, seed: Any = None, options: Any = None) -> tuple[dict, dict]:
        return {agent: [0.0] for agent in self.agents}, {}

    def step(self, actions: dict) -> tuple[dict, dict, dict]:
        return {agent: [0.0] for agent in self.agents}, {}, {}

    def close(self) -> None:
        pass


def test_a_mistake_in_the_first_step_is_reported_in_a_sentence() -> None:
    with pytest.raises(ConfigurationError, match=r"ThreeResults returned invalid values .*not enough values to unpack"):
        probe_spaces("tests.datamodules.vector.test_resolve_env.ThreeResults")


@pytest.mark.parametrize("env", ["test/Counters-v0", "tests.support.vector_only_env.Counters"])
def test_an_environment_that_exists_only_as_a_vector_needs_no_single_twin(env: str) -> None:
    assert probe_spaces(env)["obs_shape"] == (1,)
    envs = make_vector_env(env, 2)
    envs.reset(0)
    steps = [copied(envs.step(torch.ones(2, dtype=torch.int64))) for _ in range(5)]
    assert [step.obs[0, 0].item() for step in steps] == [1, 2, 3, 0, 1]
    assert [step.terminated[0].item() for step in steps] == [False, False, False, True, False]
    assert not resolving.resolve_env(env).has_fixed_num_envs
    with pytest.raises(ConfigurationError, match="exists only as a vector environment: choose backend auto or vector"):
        make_vector_env(env, 2, backend="sync")


def test_a_vector_environment_may_have_a_fixed_number() -> None:
    env = "tests.support.vector_only_env.ThreeCounters"
    assert resolving.resolve_env(env).has_fixed_num_envs
    assert probe_spaces(env, {"bonus": 1.0})["obs_shape"] == (1,)
    assert make_vector_env(env, 3).num_envs == 3
    with pytest.raises(ConfigurationError, match=r"has 3 environments, not 8: set data\.num_envs to 3"):
        make_vector_env(env, 8)


@pytest.mark.parametrize("autoreset", ["SameStep", "NextStep", "Disabled"])
def test_a_vector_environment_may_bring_several_agents(autoreset: str) -> None:
    envs = make_vector_env("tests.support.vector_only_env.TeamCounters", 2, env_kwargs={"autoreset": autoreset})
    envs.return_all_final_obs = True
    assert envs.spaces["num_agents"] == 2
    envs.reset(0)
    steps = [copied(envs.step(torch.ones(4, dtype=torch.int64))) for _ in range(9)]
    if autoreset == "NextStep":
        assert not steps[4].valid.any()
        del steps[4]
    assert [step.valid[2:].int().tolist() for step in steps[:8]] == [[1, 1], [1, 1], [1, 0], [1, 0]] * 2
    assert [step.terminated[:2].int().tolist() for step in steps[:4]] == [[0, 0], [0, 1], [0, 0], [1, 0]]
    assert all(torch.equal(step.reward, step.valid.float()) for step in steps)
    assert (steps[1].final_obs[1].item(), steps[3].final_obs[0].item()) == (2, 4)
    assert steps[3].obs[0].item() == (4 if autoreset == "NextStep" else 0)


def test_a_limit_needs_an_environment_that_can_be_reset_alone() -> None:
    cut = make_vector_env("tests.support.vector_only_env.TeamCounters", 2, env_kwargs={"autoreset": "Disabled"})
    cut.limit(3)
    cut.reset(0)
    steps = [copied(cut.step(torch.ones(4, dtype=torch.int64))) for _ in range(4)]
    assert [step.obs[0].item() for step in steps] == [1, 2, 0, 1]
    assert vector_only_env.TeamCounters(2).mode.value == "SameStep"
    other = make_vector_env("tests.support.vector_only_env.TeamCounters", 2)
    other.limit(1)
    other.reset(0)
    with pytest.raises(ConfigurationError, match="cannot reset single environments"):
        other.step(torch.ones(4, dtype=torch.int64))


@pytest.mark.parametrize("env", ["Pong-v5", "CartPole-v1"])
def test_a_name_of_envpool_is_none_of_gymnasium(env: str) -> None:
    source = resolving.resolve_env(env, "envpool")

    assert source.is_whole and not source.has_fixed_num_envs and source.spec is None


@pytest.mark.parametrize("make", [probe_spaces, lambda env, kwargs: make_vector_env(env, 2, env_kwargs=kwargs)])
@pytest.mark.parametrize(
    ("env", "kwargs", "sentence"),
    [
        (
            "CartPole-v1",
            {"sutton_barto_reward": "maybe"},
            "sutton_barto_reward of CartPole-v1 is 'maybe'; it must be true",
        ),
        (
            "FrozenLake-v1",
            {"success_rate": "high"},
            "success_rate of FrozenLake-v1 is 'high'; it must be a finite number",
        ),
        ("FrozenLake-v1", {"map_name": 4}, "map_name of FrozenLake-v1 is 4; it must be a text"),
    ],
)
def test_scalars_of_gymnasiums_environments_are_checked(
    make: Any, env: str, kwargs: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"^env_kwargs\.{sentence}"):
        make(env, kwargs)


@pytest.mark.parametrize("kwargs", [{"map_name": None}, {"reward_schedule": [0.5, 0, 0.0]}, {"success_rate": 1}])
def test_what_gymnasiums_type_hints_leave_out_is_accepted(kwargs: dict[str, Any]) -> None:
    assert probe_spaces("FrozenLake-v1", kwargs)["action_sizes"] == [4]


def test_gymnasiums_environments_accept_their_registered_arguments_and_defaults() -> None:
    for name in [name for name in gym.registry if not name.startswith(("phys2d", "tabular"))]:
        spec = gym.spec(name)
        if not str(spec.entry_point).startswith("gymnasium.envs."):
            continue
        with suppress(gym.error.DependencyNotInstalled):
            maker = load_env_creator(str(spec.entry_point))
            defaults = {key: value for key, value in signature(maker).defaults.items() if key != "render_mode"}
            resolve_env(name).check_env_kwargs(defaults | spec.kwargs)
