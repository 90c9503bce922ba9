from collections.abc import Callable
from typing import Any

import gymnasium
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import datamodules.envs  # noqa: F401  (registers the ids)
from datamodules.core.protocols import TorchFuncEnv
from datamodules.core.types import State
from datamodules.envs.gridworld.env import GridWorld
from datamodules.vector.resolve_env import resolve_env


def tensor_envs() -> list[str]:
    """Every id of `datamodules.envs` that is a TorchFuncEnv."""
    paths = {name: spec.kwargs.get("tensor_env", "") for name, spec in gymnasium.registry.items()}
    return sorted(name for name, path in paths.items() if path.startswith("datamodules.envs."))


def shape(env: TorchFuncEnv, rows: int) -> tuple[int, ...]:
    """The shape of what is one per agent."""
    agents = env.spaces["num_agents"]
    return (rows, agents) if agents > 1 else (rows,)


def actions(env: TorchFuncEnv, rows: int) -> Tensor:
    return agent_actions(env, rows * env.spaces["num_agents"]).unflatten(0, shape(env, rows))


def agent_actions(env: TorchFuncEnv, rows: int) -> Tensor:
    spaces = env.spaces
    if spaces["action_type"] == "continuous":
        low, high = torch.tensor(spaces["action_low"]), torch.tensor(spaces["action_high"])
        return low + (high - low) * torch.rand(rows, len(low))
    parts = torch.stack([torch.randint(size, (rows,)) for size in spaces["action_sizes"]], 1)
    return parts.squeeze(1) if spaces["action_type"] == "discrete" else parts


def copied(state: State) -> State:
    return {name: leaf.clone() for name, leaf in state.items()}


def same(first: State, second: State) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


every_env = pytest.mark.parametrize(
    "make",
    [
        *(pytest.param(resolve_env(name).tensor_env, id=name) for name in tensor_envs()),
        pytest.param(GridWorld, id="GridWorld of 4 agents"),
    ],
)


@every_env
@pytest.mark.parametrize("rows", [1, 7])
def test_shapes_and_dtypes(make: Callable[[], TorchFuncEnv], rows: int):
    env = make()
    state = env.initial(torch.rand(rows, env.noise_size))
    state, reward, terminated, truncated = env.transition(state, actions(env, rows), torch.rand(rows, env.noise_size))
    obs, info = env.observation(state), env.info(state)
    assert all(leaf.shape[0] == rows for leaf in state.values())
    each = shape(env, rows)
    assert obs.shape == (*each, *env.spaces["obs_shape"]) and obs.dtype == getattr(torch, env.spaces["obs_dtype"])
    assert (reward.shape, reward.dtype) == (each, torch.float32)
    assert {terminated.shape, truncated.shape} <= {(rows,), each}
    assert terminated.dtype == truncated.dtype == torch.bool
    assert all(info[name].shape == each for name in env.episode_stat_keys)
    rewards = {name for name in info if name.startswith("reward_")}
    assert all((info[name].shape, info[name].dtype) == (each, torch.float32) for name in rewards)
    assert all(name in {*env.episode_stat_keys, *rewards} or info[name].dtype == torch.bool for name in info)


@every_env
def test_a_state_keeps_its_shapes_and_dtypes(make: Callable[[], TorchFuncEnv]):
    env = make()
    first = env.initial(torch.rand(5, env.noise_size))
    after, *_ = env.transition(first, actions(env, 5), torch.rand(5, env.noise_size))
    form = [{name: (leaf.shape, leaf.dtype) for name, leaf in state.items()} for state in (first, after)]
    assert form[0] == form[1]


@every_env
def test_arguments_are_left_as_they_were(make: Callable[[], TorchFuncEnv]):
    env, action, noise = make(), actions(make(), 64), torch.rand(64, make().noise_size)
    state = env.initial(noise)
    before, action_before, noise_before = copied(state), action.clone(), noise.clone()
    after, *_ = env.transition(state, action, noise)
    env.observation(state), env.info(state)
    assert same(state, before) and torch.equal(action, action_before) and torch.equal(noise, noise_before)
    final = copied(after)
    env.transition(after, action, noise)
    assert same(after, final)


@every_env
def test_equal_noise_gives_equal_episodes(make: Callable[[], TorchFuncEnv]):
    noise, action = torch.rand(40, 16, make().noise_size), torch.stack([actions(make(), 16) for _ in range(40)])
    ends = []
    for env in (make(), make()):
        state = env.initial(noise[0])
        for step in range(1, 40):
            state, *outcome = env.transition(state, action[step], noise[step])
        ends.append((state, outcome))
    assert same(ends[0][0], ends[1][0])
    assert all(torch.equal(first, second) for first, second in zip(ends[0][1], ends[1][1], strict=True))


@every_env
def test_rows_do_not_feel_one_another(make: Callable[[], TorchFuncEnv]):
    env = make()
    noise, action = torch.rand(30, 8, env.noise_size), torch.stack([actions(env, 8) for _ in range(30)])
    state, alone = env.initial(noise[0]), env.initial(noise[0, 3:4])
    for step in range(1, 30):
        state, *_ = env.transition(state, action[step], noise[step])
        alone, *_ = env.transition(alone, action[step, 3:4], noise[step, 3:4])
    row = {name: leaf[3:4] for name, leaf in state.items()}
    torch.testing.assert_close(row, alone, rtol=1e-3, atol=1e-3)  # products depend on the batch in their last bits


@every_env
def test_nothing_is_truncated_before_the_shortest_truncation(make: Callable[[], TorchFuncEnv]):
    env = make()
    state = env.initial(torch.rand(32, env.noise_size))
    for _ in range(min((env.min_truncation_step or 50) - 1, 300)):
        state, _, terminated, truncated = env.transition(state, actions(env, 32), torch.rand(32, env.noise_size))
        assert not (truncated & ~terminated).any()


@every_env
def test_compiles_to_one_graph_with_equal_results(make: Callable[[], TorchFuncEnv]):
    torch.compiler.reset()
    env = make()
    noise, action = torch.rand(2, 16, env.noise_size), actions(env, 16)

    def step(noise: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        state, reward, *_ = env.transition(env.initial(noise[0]), action, noise[1])
        return env.observation(state), reward

    compiled = torch.compile(step, backend="eager", fullgraph=True)
    assert all(
        torch.equal(first, second) for first, second in zip(step(noise, action), compiled(noise, action), strict=True)
    )


class HostCopies(TorchDispatchMode):
    """Collects the operators that read a tensor of the host to make one of the device `meta`."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        read, made = (
            {leaf.device.type for leaf in tree_leaves(part) if isinstance(leaf, Tensor)}
            for part in ((args, kwargs), result)
        )
        self.found += [str(func)] * ("cpu" in read and "meta" in made)
        return result


@every_env
def test_a_step_copies_nothing_to_the_device_and_reads_nothing_back(make: Callable[[], TorchFuncEnv]):
    env, meta = make(), torch.device("meta")
    noise, action = torch.rand(6, env.noise_size, device=meta), actions(env, 6).to(meta)

    def play() -> None:
        state, *_ = env.transition(env.initial(noise), action, noise)  # what reads a value of `meta` raises
        env.observation(state), env.info(state)

    play()  # tables are copied once
    with HostCopies() as copies:
        play()

    assert not copies.found, "keep constants in DeviceConstants: such a step cannot be captured as a CUDA graph"
