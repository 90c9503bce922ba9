"""Rollouts and evaluations of several agents: counted per environment, masked where an agent does not act."""

from typing import Any

import pytest
import torch
from torch import Tensor

from datamodules.collect.collector import RolloutCollector
from datamodules.collect.evaluation import EvaluationDataset
from datamodules.core.protocols import VectorEnv
from datamodules.core.types import PolicyInput, PolicyOutput, Rollout, State
from datamodules.multi_agent.tensor_vector_env import MultiAgentTensorVectorEnv
from tests.datamodules.multi_agent.test_parallel_vector_env import made
from tests.support.parallel_env import LENGTHS, RelayTensors

ENVS, AGENTS, LENGTH = 2, 3, max(LENGTHS)
RETURNS = [length * ((agent + 1) % 3 + agent) for agent, length in enumerate(LENGTHS)]
"""Undiscounted return of every agent, whose action is one more than its number, modulo 3."""


class NumberPolicy:
    """Chooses one more than the agent's number; counts its steps since an episode start in its state."""

    compilable = False

    def __init__(self, column: int):
        self.column = column

    def initial_state(self, batch: int) -> State:
        return {"age": torch.zeros(batch, dtype=torch.int64)}

    def noise(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.zeros(shape)

    def act(self, inputs: PolicyInput, noise: Tensor | None = None, greedy: bool = False) -> tuple[PolicyOutput, State]:
        age = inputs.state["age"].masked_fill(inputs.episode_start, 0)
        action = (inputs.obs[:, self.column].long() + 1) % 3
        return PolicyOutput(action, {"age": age}), {"age": age + 1}


def both(which: int, **kwargs: Any) -> tuple[VectorEnv, NumberPolicy]:
    if which == 0:
        return made(**kwargs), NumberPolicy(2)
    envs = MultiAgentTensorVectorEnv(RelayTensors(**kwargs), ENVS, device=torch.device("cpu"), seed=3)
    return envs, NumberPolicy(1)


def collector(which: int, steps: int, **kwargs: Any) -> RolloutCollector:
    envs, policy = both(which, **kwargs)
    found = RolloutCollector(envs, policy, steps, torch.Generator().manual_seed(0), "relay")
    found.reset(0)
    return found


def episodes(rollout: Rollout) -> dict[str, float]:
    return dict(zip(rollout.episodes.names, rollout.episodes.values.tolist(), strict=True))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("steps", [2, 4, 5, 12])
def test_episodes_are_counted_per_environment_wherever_rollouts_cut_them(which: int, steps: int) -> None:
    collecting = collector(which, steps)
    found = [(episodes(rollout), rollout.env_steps, int(rollout.agent_steps)) for rollout in _rollouts(collecting, 60)]

    count = 60 // LENGTH * ENVS
    assert sum(each["count"] for each, *_ in found) == count
    assert sum(each["return"] for each, *_ in found) == pytest.approx(count * sum(RETURNS) / AGENTS)
    assert sum(each["length"] for each, *_ in found) == count * LENGTH
    assert sum(env_steps for _, env_steps, _ in found) == 60 * ENVS
    assert sum(agent_steps for *_, agent_steps in found) == count * sum(LENGTHS)


def _rollouts(collecting: RolloutCollector, steps: int) -> list[Rollout]:
    return [collecting.collect() for _ in range(steps // collecting.rollout_length)]


@pytest.mark.parametrize("which", [0, 1])
def test_a_shared_reward_gives_the_return_of_the_team(which: int) -> None:
    rollout = collector(which, LENGTH, shared=True).collect()
    numbers = [(agent + 1) % 3 + agent for agent in range(AGENTS)]
    team = [sum(number for number, length in zip(numbers, LENGTHS, strict=True) if t < length) for t in range(LENGTH)]
    of_agents = [sum(team[:length]) for length in LENGTHS]
    assert episodes(rollout)["return"] == pytest.approx(ENVS * sum(of_agents) / AGENTS)


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_rows_of_agents_that_ended_are_invalid_and_restart_policy_state(which: int, end: str) -> None:
    collecting = collector(which, 2 * LENGTH, end=end) if (which, end) != (1, "truncated") else collector(1, 2, end=end)
    rollout = collecting.collect()
    for t in range(len(rollout.reward)):
        age = t % LENGTH
        for row in range(ENVS * AGENTS):
            acts = age < LENGTHS[row % AGENTS]
            assert bool(rollout.valid[t, row]) == acts
            assert int(rollout.extras["age"][t, row]) == (age if acts else 0)
            assert bool(rollout.episode_start[t, row]) == (age == 0 or not acts or age == LENGTHS[row % AGENTS])
            assert acts or rollout.reward[t, row] == 0


@pytest.mark.parametrize("which", [0, 1])
def test_a_truncated_agent_keeps_its_own_last_observation_while_others_go_on(which: int) -> None:
    rollout = collector(which, 2, end="truncated").collect()
    slots, rows = (rollout.final_step >= 0).nonzero().unbind(1)
    assert sorted(rows.tolist()) == [0, 3]
    count = 1 if which == 0 else 0
    for slot, row in zip(slots.tolist(), rows.tolist(), strict=True):
        assert rollout.final_step[slot, row] == 1
        assert rollout.final_obs[slot, row, count] == 2


@pytest.mark.parametrize("which", [0, 1])
def test_evaluation_reports_the_mean_over_agents_and_every_agent(which: int) -> None:
    envs, policy = both(which)
    batch = EvaluationDataset(envs, policy, 5, seed=1, record=True).run()

    assert batch.episode_return.tolist() == pytest.approx([sum(RETURNS) / AGENTS] * 6)
    assert batch.length.tolist() == [LENGTH] * 6
    names = ["runner_0", "runner_1", "runner_2"] if which == 0 else ["agent_0", "agent_1", "agent_2"]
    assert [name for name in batch.info if name != "steps"] == [f"{name}_return" for name in names]
    for agent, name in enumerate(names):
        assert batch.info[f"{name}_return"].tolist() == [RETURNS[agent]] * 6
    assert [len(episode["reward"]) for episode in batch.trajectories] == [
        length for length in LENGTHS for _ in range(3)
    ] * ENVS
    assert [float(episode["reward"].sum()) for episode in batch.trajectories[::3]] == RETURNS * ENVS


@pytest.mark.parametrize("which", [0, 1])
def test_evaluation_is_cut_for_all_agents_of_an_environment(which: int) -> None:
    envs, policy = both(which)
    batch = EvaluationDataset(envs, policy, 4, seed=1, max_steps=3, cut=True).run()
    assert batch.length.tolist() == [3] * 4
    cut = sum(min(length, 3) * ((agent + 1) % 3 + agent) for agent, length in enumerate(LENGTHS)) / AGENTS
    assert batch.episode_return.tolist() == pytest.approx([cut] * 4)
