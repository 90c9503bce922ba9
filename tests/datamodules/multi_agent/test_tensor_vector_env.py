"""On-device environments of several agents, against the same environment in a plain loop."""

import pytest
import torch

from datamodules.multi_agent.tensor_vector_env import MultiAgentTensorVectorEnv
from tests.support.counting_env import copied
from tests.support.parallel_env import Relay, RelayTensors

ENVS, AGENTS = 2, 3


def made(num_envs: int = ENVS, **kwargs: object) -> MultiAgentTensorVectorEnv:
    return MultiAgentTensorVectorEnv(RelayTensors(**kwargs), num_envs, device=torch.device("cpu"), seed=3)


@pytest.mark.parametrize("end", ["terminated", "truncated"])
@pytest.mark.parametrize("shared", [False, True])
def test_steps_equal_those_of_the_parallel_environment(end: str, shared: bool) -> None:
    envs, oracle = made(1, end=end, shared=shared), Relay(end=end, shared=shared)
    envs.return_all_final_obs = True
    obs = envs.reset(0)[0].clone()
    oracle.reset(seed=0)
    for t in range(12):
        actions = [(t + agent) % 3 for agent in range(AGENTS)]
        acting = [oracle.number(agent) for agent in oracle.agents]
        chosen = {agent: actions[oracle.number(agent)] for agent in oracle.agents}
        shown, rewards, terminated, truncated, _ = oracle.step(chosen)
        step = copied(envs.step(torch.tensor(actions)))

        assert step.valid.nonzero()[:, 0].tolist() == acting
        assert step.reward[step.valid].tolist() == [*rewards.values()]
        assert (step.reward[~step.valid] == 0).all()
        assert step.terminated[step.valid].tolist() == [*terminated.values()]
        assert step.truncated[step.valid].tolist() == [*truncated.values()]
        ended = step.terminated | step.truncated
        last = obs if step.final_obs is None else torch.where(ended.unsqueeze(1), step.final_obs, step.obs)
        for agent, its in zip(acting, shown.values(), strict=True):
            assert (step.final_obs is None and not ended[agent]) or last[agent, :2].tolist() == its[1:3].tolist()
        if not oracle.agents:
            oracle.reset()
            assert (step.obs[:, 0] == 0).all()
        obs = step.obs


def test_a_limit_truncates_all_agents_that_act() -> None:
    envs = made()
    envs.limit(4)
    envs.reset(0)
    steps = [copied(envs.step(torch.zeros(ENVS * AGENTS, dtype=torch.int64))) for _ in range(8)]
    assert [step.truncated.view(ENVS, AGENTS)[0].tolist() for step in steps[3:8:4]] == [[False, True, False]] * 2
    assert (steps[3].obs[:, 0] == 0).all()


def test_a_static_step_equals_the_eager_one() -> None:
    eager, static = made(), made()
    static.device = torch.device("meta")  # takes the branch without host reads
    eager.reset(0)
    static.state = {name: leaf.clone() for name, leaf in eager.state.items()}
    for _ in range(11):
        action, noise = torch.ones(ENVS * AGENTS, dtype=torch.int64), eager.noise(1)[0]
        eager.state, one, _ = eager.stateless_step(eager.state, action, noise)
        static.state, other, _ = static.stateless_step(static.state, action, noise)
        assert all(torch.equal(a, b) for a, b in zip((*one[:4], one.valid), (*other[:4], other.valid), strict=True))


def test_a_restored_state_continues_to_the_bit() -> None:
    envs, other = made(), made()
    envs.reset(0)
    for _ in range(4):
        envs.step(torch.zeros(ENVS * AGENTS, dtype=torch.int64))
    other.reset(1)
    other.load_state_dict(envs.state_dict())
    for _ in range(9):
        one, two = (copied(each.step(torch.ones(ENVS * AGENTS, dtype=torch.int64))) for each in (envs, other))
        assert torch.equal(one.obs, two.obs)
        assert torch.equal(one.valid, two.valid)
