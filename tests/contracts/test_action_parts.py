"""Dict and Tuple actions reach the environment in its own space, through every backend."""

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import lightning
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete

from datamodules.core.errors import ConfigurationError
from datamodules.env_interface.action_parts import JoinActions, join_actions
from datamodules.replay import ReplayDataModule
from datamodules.rollout import RolloutDataModule
from datamodules.vector.make_env import make_vector_env, probe_spaces
from modules.dqn.dqn import DQN
from modules.dqn.pqn import PQN
from modules.networks.distributions import Categorical, DiagonalGaussian, Hybrid
from modules.networks.heads.policy import HybridHead
from modules.ppo.ppo import PPO
from modules.sac.sac import SAC
from modules.sac_options.sac_options import SACOptions
from tests.support import parts_env
from tests.support.small_runs import trainer

ENV = "tests.support.parts_env.Hybrid"


@pytest.mark.parametrize("space", ["dict", "tuple"])
def test_mixed_parts_are_choices_then_bounded_numbers(space: str):
    spaces = probe_spaces(ENV, {"space": space})
    assert (spaces["action_type"], spaces["action_sizes"]) == ("hybrid", [3])
    assert (spaces["action_low"], spaces["action_high"]) == ([-2, -2], [2, 2])


def test_parts_of_one_kind_are_a_box_or_a_multidiscrete():
    boxes, choices = (probe_spaces(ENV, {"space": space}) for space in ("boxes", "choices"))
    assert (boxes["action_type"], boxes["action_low"], boxes["action_high"]) == ("continuous", [-1, 0, 0], [1, 4, 4])
    assert (choices["action_type"], choices["action_sizes"]) == ("multidiscrete", [3, 2, 2])


@pytest.mark.parametrize(
    ("space", "flat", "expected"),
    [
        ("dict", [1.0, 0.25, 9.0], {"force": [0.25, 2.0], "kind": 2}),
        ("tuple", [2.0, -9.0, 0.5], (3, [-2.0, 0.5])),
        ("boxes", [0.5, -1.0, 3.0], {"a": [0.5], "b": [[0.0], [3.0]]}),
        ("choices", [2, 1, 0], {"a": 3, "b": [1, 0]}),
    ],
)
def test_an_action_reaches_the_environment_nested_clipped_and_counted_from_its_start(
    space: str, flat: list[float], expected: Any
):
    envs = make_vector_env(ENV, 2, backend="sync", env_kwargs={"space": space})
    envs.reset(0)
    envs.step(torch.tensor([flat, flat]))
    (action,) = envs.envs.envs[1].unwrapped.actions
    envs.close()
    parts = zip(
        action.values() if isinstance(action, dict) else action,
        expected.values() if isinstance(expected, dict) else expected,
        strict=True,
    )
    assert all(np.array_equal(part, value) for part, value in parts)


@pytest.mark.parametrize("backend", ["async", "pool"])
def test_processes_take_them_too(backend: str):
    envs = make_vector_env(ENV, 2, backend=backend, env_kwargs={"space": "dict"})
    try:
        envs.reset(0)
        assert envs.step(torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.5, 0.0]])).reward.tolist() == [1.0, 0.0]
    finally:
        envs.close()


def test_a_hybrid_distribution_is_the_product_of_its_parts():
    generator = torch.Generator().manual_seed(0)
    head = HybridHead(4, [3, 2], 2)
    policy = head(torch.randn(5, 4, generator=generator))
    assert isinstance(policy, Hybrid)
    action = policy.sample(head.noise((5,), generator))
    logits, mean = policy.parameters[:, :5], policy.parameters[:, 5:]
    first, second = Categorical(logits[:, :3]), Categorical(logits[:, 3:])
    normal = DiagonalGaussian(mean, head.log_std)
    parts = [first.log_prob(action[:, 0].long()), second.log_prob(action[:, 1].long()), normal.log_prob(action[:, 2:])]
    assert torch.allclose(policy.log_prob(action), sum(parts))
    assert torch.allclose(policy.entropy(), first.entropy() + second.entropy() + normal.entropy())
    assert torch.equal(policy.mode[:, 2:], mean) and torch.equal(policy.mode[:, 0].long(), first.mode)


def test_masked_choices_are_never_taken():
    generator, mask = torch.Generator().manual_seed(0), torch.tensor([False, True, False])
    head = HybridHead(1, [3], 1)
    policy = head(torch.zeros(100, 1), mask.expand(100, 3))
    assert set(policy.sample(head.noise((100,), generator))[:, 0].tolist()) == {1.0}


def test_ppo_learns_both_kinds_of_parts(tmp_path: Path):
    lightning.seed_everything(1, verbose=False)
    data = RolloutDataModule(ENV, num_envs=8, rollout_length=20, total_env_steps=3_200, eval_episodes=4, backend="sync")
    model = PPO(data.spaces, learning_rate=1e-2, gamma=0.5)
    trainer(tmp_path).fit(model, datamodule=data)
    (result,) = trainer(tmp_path).validate(model, data, verbose=False)
    assert result["eval/return_mean"] > 9  # at most 10; random about -3


@pytest.mark.parametrize("kind", [DQN, PQN, SAC, SACOptions])
def test_other_algorithms_refuse_them_by_name(kind: Any):
    data = (
        partial(RolloutDataModule, num_envs=2) if kind is PQN else partial(ReplayDataModule, num_envs=2, batch_size=64)
    )
    with pytest.raises(
        ConfigurationError, match=rf"{kind.__name__} cannot act .* Dict or Tuple of Box .* use modules.PPO"
    ):
        kind(data(ENV).spaces)


@pytest.mark.parametrize(
    "part", [Box(0, 3, (1,), np.int64), Box(-np.inf, np.inf, (1,), np.float32), gym.spaces.Text(3)], ids=str
)
def test_parts_that_cannot_be_learned_are_refused(part: gym.Space):
    env = parts_env.Hybrid()
    env.action_space = gym.spaces.Dict({"a": Discrete(2), "b": part})
    with pytest.raises(
        ConfigurationError, match=r"x takes actions with the part b, .*: write a gymnasium.ActionWrapper"
    ):
        join_actions(env, "x")


def test_other_actions_are_left_alone():
    env = parts_env.Hybrid()
    env.action_space = MultiDiscrete([2, 3])
    assert not isinstance(join_actions(env, "x"), JoinActions)
