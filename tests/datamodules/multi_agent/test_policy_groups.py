"""Rows that other policies play."""

from typing import Any

import pytest
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.protocols import VectorEnv
from datamodules.core.types import PolicyInput, PolicyOutput, State
from datamodules.multi_agent.policy_groups import PolicyGroups, learning_spaces
from datamodules.multi_agent.tensor_vector_env import MultiAgentTensorVectorEnv
from tests.datamodules.multi_agent.test_parallel_vector_env import made
from tests.support.counting_env import copied
from tests.support.parallel_env import RelayTensors

ENVS, AGENTS = 2, 3


class CountingPolicy:
    """Chooses how often it acted in this episode, modulo 3; keeps the noise it was given."""

    def __init__(self) -> None:
        self.inputs: list[PolicyInput] = []
        self.noises: list[Tensor] = []

    def initial_state(self, batch: int) -> State:
        return {"acted": torch.zeros(batch, dtype=torch.int64)}

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.rand((*shape, 2), generator=generator)

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        acted = inputs.state["acted"].masked_fill(inputs.episode_start, 0)
        self.inputs.append(inputs)
        self.noises.append(noise)
        return PolicyOutput(acted % 3, {}), {"acted": acted + 1}


def both() -> list[VectorEnv]:
    return [made(), MultiAgentTensorVectorEnv(RelayTensors(), ENVS, device=torch.device("cpu"), seed=3)]


@pytest.mark.parametrize("which", [0, 1])
def test_learning_rows_equal_those_of_an_environment_given_all_actions(which: int) -> None:
    inner, opponent = both()[which], CountingPolicy()
    envs, oracle = PolicyGroups(both()[which], [1, 0, 1], [opponent], seed=5), inner
    assert envs.spaces["num_agents"] == 1
    obs, full = envs.reset(0)[0], oracle.reset(0)[0].clone()
    assert torch.equal(obs, full[1::3])
    acted = torch.zeros(ENVS * AGENTS, dtype=torch.int64)
    for t in range(11):
        action = acted % 3
        action[1::3] = t % 3
        noise = oracle.noise(1)
        step = copied(envs.step(torch.full((ENVS,), t % 3), None if noise is None else _with_opponents(envs, noise)))
        expected = copied(oracle.step(action, None if noise is None else noise[0]))
        acted = (acted + 1).masked_fill(expected.terminated | expected.truncated | ~expected.valid, 0)
        for name in ("obs", "reward", "terminated", "truncated", "valid"):
            assert torch.equal(getattr(step, name), getattr(expected, name)[1::3]), name
        assert torch.equal(opponent.inputs[-1].obs, full.view(ENVS, AGENTS, -1)[:, ::2].flatten(0, 1))
        full = expected.obs


def _with_opponents(envs: PolicyGroups, noise: Tensor) -> Tensor:
    """The environment's noise of an oracle, followed by the opponents' own."""
    drawn = envs.noise(1)
    return torch.cat([noise[0], drawn[0][:, noise.shape[-1] :]], 1)


def test_noise_reaches_its_row_whether_steps_are_drawn_at_once_or_one_by_one() -> None:
    at_once, one_by_one = (PolicyGroups(both()[1], [0, 1, 1], [CountingPolicy()], seed=5) for _ in range(2))
    at_once.reset(0)
    noise = at_once.noise(1)
    at_once.stateless_step(at_once.state, torch.zeros(ENVS, dtype=torch.int64), noise[0])

    seen = at_once.opponents[0].policy.noises[-1]

    assert seen.shape == (ENVS * 2, 2)
    assert torch.equal(seen.reshape(ENVS, -1), noise[0][:, 1:])
    one_by_one.reset(0)
    one_by_one.step(torch.zeros(ENVS, dtype=torch.int64))
    assert torch.equal(one_by_one.opponents[0].policy.noises[-1], seen)


def test_a_restored_state_continues_to_the_bit() -> None:
    envs, other = (PolicyGroups(both()[1], [0, 1, 0], [CountingPolicy()], seed=5) for _ in range(2))
    envs.reset(0)
    for _ in range(4):
        envs.step(torch.zeros(ENVS * 2, dtype=torch.int64))
    other.reset(1)
    other.load_state_dict(envs.state_dict())
    for _ in range(8):
        one, two = (copied(each.step(torch.ones(ENVS * 2, dtype=torch.int64))) for each in (envs, other))
        assert torch.equal(one.obs, two.obs)
        assert torch.equal(one.reward, two.reward)
    assert torch.equal(envs.opponents[0].policy.noises[-1], other.opponents[0].policy.noises[-1])


def test_masks_reach_the_opponents() -> None:
    envs = PolicyGroups(made(masks=True), [0, 0, 1], [CountingPolicy()])
    _, masks = envs.reset(0)
    envs.step(torch.ones(ENVS * 2, dtype=torch.int64))
    assert masks["action_mask"].shape == (ENVS * 2, 3)
    assert envs.opponents[0].policy.inputs[0].action_mask.tolist() == [[False, True, True]] * ENVS


@pytest.mark.parametrize(
    ("groups", "opponents", "words"),
    [
        ([0, 1], 1, "has 2 entries, but the environment has 3 agents"),
        ([1, 1, 1], 1, "has no 0"),
        ([0, 2, 1], 1, "data.opponents has 1 policies"),
        ([0, 0, 0], 1, "data.opponents has 1 policies"),
    ],
)
def test_groups_that_fit_neither_agents_nor_opponents_are_refused(groups: Any, opponents: int, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        learning_spaces(RelayTensors().spaces, groups, opponents)
