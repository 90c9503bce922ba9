"""The scripted opponent: it scores alone, it serves as an opponent, and it refuses other environments."""

import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput
from datamodules.envs.carball.chaser import Chaser
from datamodules.envs.carball.env import Carball
from datamodules.rollout import RolloutDataModule


@pytest.mark.parametrize("actions", ["discrete", "continuous"])
def test_it_scores_from_every_kickoff(actions: str) -> None:
    env = Carball(actions=actions)
    chaser, noise = Chaser(env.spaces), torch.arange(5).div(5)[:, None]
    state, scored = env.initial(noise), torch.zeros(5)
    for _ in range(250):
        inputs = PolicyInput(env.observation(state), {}, torch.zeros(5, dtype=torch.bool))
        state, *_ = env.transition(state, chaser.act(inputs)[0].action, noise)
        scored = torch.where(scored == 0, state["scored"], scored)

    assert (scored == 1).all()


def test_it_plays_orange_as_it_plays_blue() -> None:
    env = Carball(mode="1v1")
    state = env.initial(torch.zeros(3, 1))
    obs = env.observation(state)

    action = Chaser(env.spaces).act(PolicyInput(obs.flatten(0, 1), {}, torch.zeros(6, dtype=torch.bool)))[0].action

    assert action.shape == (6, 8) and torch.equal(action[0], action[1])


def test_it_refuses_another_environment() -> None:
    with pytest.raises(ConfigurationError, match="Chaser plays Car-ball only"):
        Chaser(RolloutDataModule("CartPole-v1").spaces)
