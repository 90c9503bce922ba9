"""An episode of several agents is played with a row for each of them."""

from itertools import pairwise

import pytest
import torch

from app.export.comparison import compare, record
from app.export.decision import Decision
from app.verify.checks import contract, determinism
from datamodules import RolloutDataModule
from datamodules.envs.carball.chaser import Chaser
from datamodules.multi_agent.settings import OpponentFactory
from modules import PPO, CheckpointPool


@pytest.mark.parametrize("env", ["tests.support.parallel_env.Relay", "tests.support.parallel_env.RelayTensors"])
def test_every_agent_is_a_row_and_can_be_exported(env: str) -> None:
    data = RolloutDataModule(env, num_envs=2, rollout_length=8)
    model = PPO(data.spaces)
    agents = data.spaces["num_agents"]

    steps = [*data.rendered_episode(model, seed=1)]

    assert agents > 1 and all(len(step.inputs.episode_start) == agents for step in steps)
    assert steps[-1].output is None and steps[0].inputs.episode_start.all() and steps[0].action.shape[0] == agents
    decision = Decision(model)
    recorded = record(data, decision, 5)
    decision.masked = recorded.inputs[0].action_mask is not None
    assert compare(decision, decision, recorded).holds
    assert determinism(data).status == "cannot"
    assert contract(data).status == "cannot"
    assert torch.is_tensor(steps[0].inputs.obs)


def test_an_on_device_environment_of_several_agents_is_rendered() -> None:
    world = {"num_agents": 2, "size": 8, "num_maps": 2, "time_limit": 16}
    data = RolloutDataModule("GridWorld-v0", env_kwargs=world, num_envs=2, rollout_length=8, append_obs=["agent_id"])
    model = PPO(data.spaces)

    steps = [*data.rendered_episode(model, seed=1)]
    without = [*data.rendered_episode(model, seed=1, images=False)]

    assert len(steps) == 17 and all(step.image.shape == (160, 160, 3) for step in steps)
    assert any((one.image != other.image).any() for one, other in pairwise(steps))
    assert all(step.image is None for step in without)
    assert [step.reward for step in steps] == [step.reward for step in without]


def test_an_agent_that_learns_alone_against_opponents_is_rendered() -> None:
    world = {"mode": "1v1", "time_limit": 8}
    data = RolloutDataModule("Carball-v0", env_kwargs=world, policy_group=[0, 1], opponents=[Chaser])
    model = PPO(data.spaces)

    steps = [*data.rendered_episode(model, seed=1)]

    assert data.spaces["num_agents"] == 1 and len(steps) == 9
    assert all(len(step.inputs.episode_start) == 1 and step.image is not None for step in steps)
    assert any((one.image != other.image).any() for one, other in pairwise(steps))
    assert len(record(data, Decision(model), 5).inputs) == 5
    assert determinism(data).status == "cannot"


def against(*opponents: OpponentFactory) -> RolloutDataModule:
    world = {"mode": "1v1", "time_limit": 32, "start": "random"}
    return RolloutDataModule("Carball-v0", env_kwargs=world, policy_group=[0, 1], opponents=[*opponents])


def test_a_policy_plays_itself_in_place_of_the_past_checkpoints() -> None:
    data = against(CheckpointPool)
    episodes = []
    for _ in range(2):
        model = PPO(data.spaces)
        steps, same = ([*each.rendered_episode(model, seed=1)] for each in (data, against(lambda _, own=model: own)))
        episodes.append(torch.stack([step.inputs.obs for step in steps]))
        assert torch.equal(episodes[-1], torch.stack([step.inputs.obs for step in same]))
        assert len(record(data, Decision(model), 5).inputs) == 5

    chased = torch.stack([step.inputs.obs for step in against(Chaser).rendered_episode(model, seed=1)])
    assert not torch.equal(*episodes) and not torch.equal(episodes[-1], chased)


def test_one_agent_sees_the_appended_observations() -> None:
    data = RolloutDataModule("CartPole-v1", num_envs=2, rollout_length=8, append_obs=["last_action"], eval_max_steps=4)
    model = PPO(data.spaces)

    steps = [*data.rendered_episode(model, seed=1)]

    for before, after in pairwise(steps):
        assert torch.equal(after.inputs.obs[0, 4:].argmax(), before.output.action[0])
