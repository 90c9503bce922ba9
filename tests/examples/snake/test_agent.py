import copy

import numpy as np
import pytest
import torch
from torch.nn.functional import smooth_l1_loss

from datamodules.core.errors import ConfigurationError


def make(**arguments):
    from agent import DQNAgent

    return DQNAgent(6, 4, device="cpu", **arguments)


def remember(agent, count: int, reward: float = 1.0, done: bool = True) -> None:
    rng = np.random.default_rng(0)
    for _ in range(count):
        agent.remember(rng.random(6), int(rng.integers(4)), reward, rng.random(6), done)


def test_the_memory_keeps_the_newest():
    agent = make(capacity=5)
    for number in range(7):
        agent.remember(np.full(6, number), number % 4, number, np.full(6, number + 1), number == 6)
    states, actions, rewards, next_states, goes_on = agent.memory.sample(np.arange(5), agent.device)
    assert len(agent.memory) == 5 and sorted(rewards.tolist()) == [2, 3, 4, 5, 6]
    assert torch.equal(next_states, states + 1) and torch.equal(actions, (rewards % 4).long())
    assert goes_on.tolist() == [0.0 if reward == 6 else 1.0 for reward in rewards]


def test_a_replay_descends_the_gradient_of_autograd():
    agent = make(batch_size=8, max_grad_norm=float("inf"))
    remember(agent, 64, reward=3.0, done=False)
    rows = copy.deepcopy(agent.random).integers(64, size=8)
    states, actions, rewards, next_states, _ = agent.memory.sample(rows, agent.device)
    target = rewards + 0.99 * agent.target(next_states).squeeze(-1).amax(1)
    values = agent.network(states).squeeze(-1).gather(1, actions[:, None]).squeeze(1)
    expected = torch.autograd.grad(smooth_l1_loss(values, target), agent.parameters)

    agent.replay()

    assert all(torch.allclose(*pair, atol=1e-6) for pair in zip(agent.flat.grad_views, expected, strict=True))


def test_replaying_learns_what_was_paid():
    agent = make()
    remember(agent, 64, reward=3.0)
    losses = [agent.replay().item() for _ in range(150)]
    assert losses[-1] < 0.1 < losses[0]


def test_the_target_is_copied_every_so_many_replays_and_epsilon_falls():
    agent = make(target_interval=2, epsilon_decay=0.5, epsilon_min=0.2)
    remember(agent, 64, done=False)
    copies = []
    for _ in range(4):
        agent.replay()
        copies.append(torch.equal(agent.target.head.linear.weight, agent.network.head.linear.weight))
    assert copies == [False, True, False, True] and agent.epsilon == 0.2


def test_a_gradient_is_clipped():
    agent = make(max_grad_norm=0.01)
    remember(agent, 64, reward=1000.0)
    agent.replay()
    assert agent.flat.gradient.norm() == pytest.approx(0.01, rel=1e-4)


def test_acting_is_greedy_when_asked_and_random_by_epsilon():
    agent, state = make(epsilon=1.0), np.ones(6)
    best = int(agent.network(torch.ones(1, 6)).argmax())
    assert {agent.act(state, greedy=True) for _ in range(20)} == {best}
    assert {agent.act(state) for _ in range(100)} == {0, 1, 2, 3}


def test_what_is_saved_goes_on_alike(tmp_path):
    agents = [make(seed=5), make(seed=6)]
    remember(agents[0], 64), remember(agents[1], 64)
    for _ in range(3):
        agents[0].replay()
    agents[0].save(tmp_path / "snake.pt")
    agents[1].load(tmp_path / "snake.pt")
    agents[1].random = agents[0].random = np.random.default_rng(1)
    agents[0].replay()
    agents[1].random = np.random.default_rng(1)
    agents[1].replay()
    pairs = zip(agents[0].parameters, agents[1].parameters, strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert (agents[0].epsilon, agents[0].updates) == (agents[1].epsilon, agents[1].updates)


def test_a_foreign_file_is_one_sentence(tmp_path):
    torch.save({"agent": make()}, tmp_path / "pickled.pt")
    torch.save({"epsilon": 0.1}, tmp_path / "parts.pt")
    (tmp_path / "noise.pt").write_bytes(b"\x00\x01snake")
    for name, sentence in (
        ("pickled", "could execute code"),
        ("parts", "lacks model_state_dict"),
        ("noise", "not a file of"),
    ):
        with pytest.raises(ConfigurationError, match=sentence) as error:
            make().load(tmp_path / f"{name}.pt")
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigurationError, match="There is no checkpoint"):
        make().load(tmp_path / "nothing.pt")


def test_weights_of_other_sizes_are_refused(tmp_path):
    from agent import DQNAgent

    DQNAgent(7, 4, device="cpu").save(tmp_path / "snake.pt")
    with pytest.raises(ConfigurationError, match="choose the old state size"):
        make().load(tmp_path / "snake.pt")
