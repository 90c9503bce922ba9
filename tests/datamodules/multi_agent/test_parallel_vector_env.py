"""PettingZoo's parallel environments as rows, against a plain loop over the same environments."""

import functools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from datamodules.core.errors import ConfigurationError
from datamodules.core.seeding import env_seeds
from datamodules.multi_agent.parallel_vector_env import ParallelVectorEnv
from datamodules.multi_agent.vector_adapter import MultiAgentVectorAdapter
from tests.support.counting_env import copied
from tests.support.parallel_env import Relay, play

ENVS, AGENTS, STEPS = 2, 3, 23


def made(num_envs: int = ENVS, seed: int = 7, kind: Any = Relay, **kwargs: Any) -> MultiAgentVectorAdapter:
    envs = ParallelVectorEnv([functools.partial(kind, **kwargs)] * num_envs, name="relay")
    return MultiAgentVectorAdapter(envs, device=torch.device("cpu"), seed=seed, name="relay")


def action(t: int, row: int) -> int:
    return (t + row) % 3


def transitions(envs: MultiAgentVectorAdapter, steps: int) -> list[list[tuple]]:
    """What `play` returns, of every row, as the adapter shows it."""
    obs, rows = envs.reset(7)[0].clone(), [[] for _ in range(ENVS * AGENTS)]
    for t in range(steps):
        actions = [action(t, row) for row in range(ENVS * AGENTS)]
        step = copied(envs.step(torch.tensor(actions)))
        for row in step.valid.nonzero()[:, 0].tolist():
            flags = bool(step.terminated[row]), bool(step.truncated[row])
            following = step.obs if not any(flags) else step.final_obs
            values = obs[row].tolist(), actions[row], step.reward[row].item(), *flags, following[row].tolist()
            rows[row].append(values)
        obs = step.obs
    return rows


@pytest.mark.parametrize("end", ["terminated", "truncated"])
@pytest.mark.parametrize("shared", [False, True])
def test_every_row_has_the_transitions_of_its_agent_in_a_plain_loop(end: str, shared: bool) -> None:
    envs = made(end=end, shared=shared)
    envs.return_all_final_obs = True

    rows = transitions(envs, STEPS)

    for number, seed in enumerate(env_seeds(7, ENVS).tolist()):
        first = number * AGENTS
        relay = Relay(end=end, shared=shared)
        oracle = play(relay, seed, lambda t, agent, first=first: action(t, first + agent), STEPS)
        assert rows[first : first + AGENTS] == [oracle[agent] for agent in range(AGENTS)]


def test_agents_that_ended_are_not_valid_until_the_environment_is_over() -> None:
    envs = made()
    envs.reset(0)
    steps = [copied(envs.step(torch.ones(ENVS * AGENTS, dtype=torch.int64))) for _ in range(10)]

    assert [step.valid[:AGENTS].int().tolist() for step in steps[:5]] == [
        [1, 1, 1],
        [1, 1, 1],
        [0, 1, 1],
        [0, 1, 0],
        [0, 1, 0],
    ]
    assert [step.valid.all().item() for step in steps] == [True, True, False, False, False] * 2
    assert all((step.reward[~step.valid] == 0).all() for step in steps)
    assert steps[1].obs[0, 1] == 2  # its last observation, for the value of a truncated agent
    assert (steps[2].obs[0] == 0).all()
    assert (steps[4].obs[:, 0] == 1).all()  # all agents start again together
    assert steps[4].truncated.view(ENVS, AGENTS).int().tolist() == [[0, 1, 0]] * ENVS
    assert (steps[4].final_obs[1, 1], steps[4].obs[1, 1]) == (5, 0)


def test_a_limit_truncates_all_agents_that_act_and_resets_their_environment() -> None:
    envs = made()
    envs.limit(3)
    envs.reset(0)
    steps = [copied(envs.step(torch.zeros(ENVS * AGENTS, dtype=torch.int64))) for _ in range(6)]

    assert steps[2].truncated.view(ENVS, AGENTS).int().tolist() == [[0, 1, 0]] * ENVS
    assert steps[2].terminated.view(ENVS, AGENTS).int().tolist() == [[0, 0, 1]] * ENVS
    assert (steps[2].obs[:, 0] == 1).all()
    assert steps[5].obs[0, 0] == 2


def test_masks_of_agents_reach_their_rows_and_others_allow_everything() -> None:
    envs = made(masks=True)
    _, masks = envs.reset(0)
    assert masks["action_mask"].tolist() == [[False, True, True]] * ENVS * AGENTS

    step = copied(envs.step(torch.ones(ENVS * AGENTS, dtype=torch.int64)))
    assert step.info["action_mask"].tolist() == [[True, False, True]] * ENVS * AGENTS
    for _ in range(2):
        step = copied(envs.step(torch.ones(ENVS * AGENTS, dtype=torch.int64)))
    assert step.info["action_mask"].view(ENVS, AGENTS, 3)[0].tolist() == [[True] * 3, *[[False, True, True]] * 2]


class Uneven(Relay):
    """Agents with observations and choices of different sizes."""

    def observation_space(self, agent: str) -> gym.Space:
        return Box(-1, 9, (self.number(agent) + 1,), np.float32)

    def action_space(self, agent: str) -> gym.Space:
        return Discrete(3 - self.number(agent))

    def shown(self, agents: list[str]) -> dict[str, np.ndarray]:
        return {agent: np.full(self.number(agent) + 1, self.count + 1, np.float32) for agent in agents}


def test_observations_of_different_size_are_padded_and_missing_choices_masked() -> None:
    envs = made(num_envs=1, kind=Uneven)
    obs, masks = envs.reset(0)

    assert (envs.spaces["obs_shape"], envs.spaces["action_sizes"], envs.spaces["num_agents"]) == ((3,), [3], 3)
    assert obs.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert masks["action_mask"].tolist() == [[True, True, True], [True, True, False], [True, False, False]]


class Mixed(Relay):
    def observation_space(self, agent: str) -> gym.Space:
        return Discrete(4) if agent == "runner_1" else super().observation_space(agent)


class Leaving(Relay):
    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        results = super().step(actions)
        self.agents = self.agents[1:]
        return results


def test_spaces_that_cannot_be_padded_are_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"relay has agents with different observation spaces.*runner_1 Disc"):
        made(kind=Mixed)


def test_an_agent_that_disappears_without_an_end_is_an_error_that_names_it() -> None:
    envs = made(kind=Leaving)
    envs.reset(0)
    with pytest.raises(ConfigurationError, match="relay removed agent runner_0 without an end"):
        envs.step(torch.zeros(ENVS * AGENTS, dtype=torch.int64))


def test_close_closes_every_environment() -> None:
    envs = made()
    envs.close()
    assert all(env.closed for env in envs.envs.envs)
