"""Which rows each checkpoint of a pool plays."""

from functools import partial
from pathlib import Path

import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput
from modules.networks.recurrent import LSTM
from modules.opponents.checkpoint_pool import CheckpointPool
from modules.ppo.ppo import PPO
from tests.support.small_runs import cartpole_data

SPACES = cartpole_data().spaces


def made(seed: int, recurrent: bool = False) -> PPO:
    torch.manual_seed(seed)
    return PPO(SPACES, network=partial(LSTM, hidden=8), share_torso=True) if recurrent else PPO(SPACES)


@pytest.mark.parametrize("recurrent", [False, True])
def test_each_checkpoint_plays_its_share_of_the_rows(recurrent: bool, tmp_path: Path) -> None:
    pool, policies = CheckpointPool(SPACES, size=2), [made(seed, recurrent) for seed in (1, 2)]
    for number, policy in enumerate(policies):
        torch.save({"state_dict": policy.state_dict()}, tmp_path / f"{number}.ckpt")
    pool.fill(made(3, recurrent))
    pool.load([tmp_path / "0.ckpt", tmp_path / "1.ckpt"])
    obs = torch.randn(7, 4)
    inputs = PolicyInput(obs, pool.initial_state(7), torch.zeros(7, dtype=torch.bool))
    noise = pool.noise((7,), torch.Generator().manual_seed(0))

    output, state = pool.act(inputs, noise)

    for policy, rows in zip(policies, (slice(0, 3), slice(3, 7)), strict=True):
        before = {name: leaf[rows] for name, leaf in inputs.state.items()}
        alone, after = policy.act(PolicyInput(obs[rows], before, inputs.episode_start[rows]), noise[rows])
        assert torch.equal(output.action[rows], alone.action)
        assert all(torch.equal(state[name][rows], after[name]) for name in after)


def test_fewer_checkpoints_and_fewer_rows_than_places(tmp_path: Path) -> None:
    pool, policy = CheckpointPool(SPACES, size=3), made(1)
    torch.save({"state_dict": policy.state_dict()}, tmp_path / "0.ckpt")
    pool.fill(made(2))
    pool.load([tmp_path / "0.ckpt"])

    inputs = PolicyInput(torch.randn(1, 4), {}, torch.zeros(1, dtype=torch.bool))

    assert torch.equal(pool.act(inputs, greedy=True)[0].action, policy.act(inputs, greedy=True)[0].action)


def test_bad_sizes_and_other_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="size 0"):
        CheckpointPool(SPACES, size=0)
    pool = CheckpointPool(SPACES)
    with pytest.raises(ConfigurationError, match=r"needs callbacks\.SelfPlay"):
        pool.initial_state(1)
    pool.fill(made(1))
    torch.save({"state_dict": made(1, recurrent=True).state_dict()}, tmp_path / "0.ckpt")
    with pytest.raises(ConfigurationError, match="other weights"):
        pool.load([tmp_path / "0.ckpt"])
