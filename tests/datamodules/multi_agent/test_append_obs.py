"""Agent id, last action and last reward in observations."""

from typing import Any

import pytest
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.protocols import VectorEnv
from datamodules.core.types import State
from datamodules.multi_agent.append_obs import AppendObs, append_spaces
from datamodules.multi_agent.tensor_vector_env import MultiAgentTensorVectorEnv
from datamodules.vector.make_env import make_vector_env
from tests.datamodules.multi_agent.test_parallel_vector_env import made
from tests.support.counting_env import copied
from tests.support.parallel_env import RelayTensors

ENVS, AGENTS = 2, 3


def both() -> list[VectorEnv]:
    return [made(), MultiAgentTensorVectorEnv(RelayTensors(), ENVS, device=torch.device("cpu"), seed=3)]


@pytest.mark.parametrize("which", [0, 1])
def test_parts_follow_the_observation_and_start_at_zero(which: int) -> None:
    inner = both()[which]
    width = inner.spaces["obs_shape"][0]
    envs = AppendObs(inner, ["last_reward", "agent_id", "last_action"], "relay")
    obs, _ = envs.reset(0)

    assert envs.spaces["obs_shape"] == (width + 3 + 3 + 1,)
    assert obs[:, width : width + 3].tolist() == torch.eye(3).repeat(ENVS, 1).tolist()
    assert (obs[:, width + 3 :] == 0).all()

    actions = torch.tensor([0, 1, 2] * ENVS)
    first, second = (copied(envs.step(actions)) for _ in range(2))
    assert first.obs[1, width + 3 :].tolist() == [0, 1, 0, 2]  # chose 1, earned 1 + its number
    assert (second.obs[0, width + 3 :] == 0).all()  # ended: what follows begins an episode
    assert second.obs[2, width + 3 :].tolist() == [0, 0, 1, 4]


def test_the_last_observation_of_an_agent_holds_its_last_action_and_reward() -> None:
    envs = AppendObs(made(end="truncated"), ["last_action", "last_reward"], "relay")
    envs.reset(0)
    actions = torch.tensor([2, 1, 2] * ENVS)
    step = [copied(envs.step(actions)) for _ in range(2)][1]
    assert step.final_obs is not None
    assert step.final_obs[0].tolist()[4:] == [0, 0, 1, 2]


def test_a_pure_step_equals_the_step_of_the_same_environment() -> None:
    one, other = (AppendObs(both()[1], ["agent_id", "last_action", "last_reward"], "relay") for _ in range(2))
    one.reset(0)
    other.reset(0)
    state = other.state
    for t in range(9):
        action = torch.arange(ENVS * AGENTS).add(t) % 3
        noise = one.noise(1)
        step = copied(one.step(action, noise[0]))
        state, pure, last = other.stateless_step(state, action, noise[0])
        assert torch.equal(pure.obs, step.obs)
        assert torch.equal(other.observation(state), step.obs)
        if step.final_obs is not None:
            assert torch.equal(other.observation(last)[step.truncated], step.final_obs[step.truncated])


def test_a_single_agent_sees_its_last_action_and_reward_too() -> None:
    envs = AppendObs(make_vector_env("CartPole-v1", 2), ["last_action", "last_reward"], "CartPole-v1")
    envs.reset(0)
    assert envs.step(torch.tensor([0, 1])).obs[:, 4:].tolist() == [[1, 0, 1], [0, 1, 1]]


def test_continuous_actions_are_scaled_to_their_range() -> None:
    envs = AppendObs(make_vector_env("Pendulum-v1", 2), ["last_action"], "Pendulum-v1")
    envs.reset(0)
    assert envs.step(torch.tensor([[9.0], [1.0]])).obs[:, 3:].tolist() == [[1], [0.5]]


def test_an_observation_that_is_no_vector_gets_further_parts() -> None:
    image: Any = {**RelayTensors().spaces, "obs_shape": (3, 8, 8), "obs_dtype": "uint8", "obs_high": 9.0}
    spaces = append_spaces(image, ["last_reward", "agent_id"], "relay")
    assert (spaces["obs_shape"], spaces["obs_dtype"]) == ((), "dict")
    assert spaces["obs_parts"] == {
        "obs": {"shape": (3, 8, 8), "dtype": "uint8", "high": 9.0},
        "agent_id": {"shape": (3,), "dtype": "float32"},
        "last_reward": {"shape": (1,), "dtype": "float32"},
    }


class Planes(RelayTensors):
    """Shows the same numbers as an image of one row."""

    def __init__(self) -> None:
        super().__init__()
        self.spaces = {**self.spaces, "obs_shape": (1, 3)}

    def observation(self, state: State) -> Tensor:
        return super().observation(state).unsqueeze(2)


def test_parts_are_beside_an_image() -> None:
    inner = MultiAgentTensorVectorEnv(Planes(), ENVS, device=torch.device("cpu"), seed=3)
    envs = AppendObs(inner, ["agent_id", "last_reward"], "relay")
    envs.reset(0)
    obs = envs.step(torch.tensor([0, 1, 2] * ENVS)).obs
    assert {name: tuple(part.shape) for name, part in obs.items()} == {
        "obs": (6, 1, 3),
        "agent_id": (6, 3),
        "last_reward": (6, 1),
    }
    assert obs["last_reward"][:3].tolist() == [[0], [2], [4]]


def test_unknown_and_existing_parts_are_refused() -> None:
    spaces = RelayTensors().spaces
    with pytest.raises(ConfigurationError, match="'identity': choose from agent_id"):
        append_spaces(spaces, ["identity"], "relay")  # type: ignore[list-item]
    once = append_spaces({**spaces, "obs_shape": (1, 3)}, ["agent_id"], "relay")
    with pytest.raises(ConfigurationError, match="relay already has the part agent_id"):
        append_spaces(once, ["agent_id"], "relay")
