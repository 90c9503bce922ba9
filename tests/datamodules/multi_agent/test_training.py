"""Runs of several agents: what is counted, what is masked, resume to the bit, two ranks, opponents."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.pytree import tree_map
from datamodules.core.types import Rollout
from datamodules.replay import ReplayDataModule
from datamodules.rollout import RolloutDataModule
from modules.dqn.dqn import DQN
from modules.networks.recurrent import GRU
from modules.opponents.checkpoint_policy import CheckpointPolicy
from tests.support.ddp_agents_worker import agents_data, train
from tests.support.parallel_env import LENGTHS
from tests.support.small_runs import fitted, small_ppo, trainer, weights_hash
from tests.support.two_ranks import TwoRanks

RELAY, TENSORS = "tests.support.parallel_env.Relay", "tests.support.parallel_env.RelayTensors"


def relay_data(env: str = RELAY, **changes: Any) -> RolloutDataModule:
    """Four environments of three agents, rollouts of ten steps (two episodes), four iterations."""
    small: dict[str, Any] = {"env": env, "num_envs": 4, "rollout_length": 10, "total_env_steps": 160}
    return RolloutDataModule(**{**small, "eval_episodes": 4, **changes})


@pytest.mark.parametrize("env", [RELAY, TENSORS])
def test_env_steps_are_counted_once_for_all_agents_and_agent_steps_beside(env: str, tmp_path: Path) -> None:
    model = fitted(tmp_path, relay_data(env, rollout_length=5 if env == TENSORS else 10), val_check_interval=4)
    assert model.env_steps == 160
    assert int(model.agent_steps) == 160 // max(LENGTHS) * sum(LENGTHS)
    assert model.last_logged["rollout/agent_steps"] == int(model.agent_steps)
    assert model.last_logged["rollout/length_mean"] == max(LENGTHS)
    assert model.last_logged["eval/episodes"] == 4
    each = [value for name, value in model.last_logged.items() if name.endswith("_return_mean")]
    assert len(each) == 3
    assert model.last_logged["eval/return_mean"] == pytest.approx(sum(each) / 3)


def test_a_run_of_one_agent_logs_no_agent_steps(tmp_path: Path) -> None:
    model = fitted(tmp_path, relay_data(env_kwargs={"lengths": [3]}))
    assert "rollout/agent_steps" not in model.last_logged
    assert model.spaces["num_agents"] == 1


@pytest.mark.parametrize("recurrent", [False, True])
def test_rows_of_agents_that_do_not_act_have_no_influence(recurrent: bool, tmp_path: Path) -> None:
    changes: dict[str, Any] = (
        {"network": partial(GRU, hidden=8, encoder=(8,)), "share_torso": True} if recurrent else {}
    )
    hashes = []
    for disturb in (lambda rollout: rollout, disturbed):
        lightning.seed_everything(1, verbose=False)
        model = small_ppo(relay_data(), num_minibatches=2, **changes)
        prepare, normalise = model.prepare, model.after_update
        model.prepare = lambda rollout, prepare=prepare, disturb=disturb: prepare(disturb(rollout))
        model.after_update = lambda rollout, merge=normalise, disturb=disturb: merge(disturb(rollout))
        trainer(tmp_path, manual_backward=False).fit(model, datamodule=relay_data())
        hashes.append(weights_hash(model))
    assert hashes[0] == hashes[1]


def disturbed(rollout: Rollout) -> Rollout:
    """The same rollout with other values where an agent does not act."""
    invalid = ~rollout.valid
    assert invalid.any()
    obs = rollout.obs.clone()
    obs[:-1][invalid] = 7.0
    reward = rollout.reward.masked_fill(invalid, 0.0)
    extras = tree_map(lambda leaf: leaf.clone(), rollout.extras)
    action = rollout.action.masked_fill(invalid, 2)
    return rollout._replace(obs=obs, reward=reward, action=action, extras=extras)


def test_a_resumed_run_ends_where_the_whole_one_does(tmp_path: Path) -> None:
    whole = fitted(tmp_path, agents_data())
    lightning.seed_everything(1, verbose=False)
    part = tmp_path / "part.ckpt"
    run = trainer(tmp_path, max_steps=4)
    data = agents_data()
    run.fit(small_ppo(data, learning_rate_schedule="linear"), datamodule=data)
    run.save_checkpoint(part)
    resumed = fitted(tmp_path, agents_data(), ckpt_path=part)
    assert weights_hash(resumed) == weights_hash(whole)
    assert (resumed.env_steps, int(resumed.agent_steps)) == (whole.env_steps, int(whole.agent_steps))


def test_two_ranks_count_together(ranks: TwoRanks, tmp_path: Path) -> None:
    ranks.run(train, tmp_path)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result == {"env_steps": 320, "agent_steps": 320 // max(LENGTHS) * (LENGTHS[0] + LENGTHS[2])}


def test_a_replay_holds_the_steps_of_agents_that_act(tmp_path: Path) -> None:
    where: dict[str, Any] = {"env": TENSORS, "num_envs": 4, "train_freq": 5, "capacity": 480, "batch_size": 20}
    data = ReplayDataModule(**where, replay_ratio=2.0, learning_starts=40, total_env_steps=400, n_step=3)
    lightning.seed_everything(1, verbose=False)
    model = DQN(data.spaces)
    ready: list[tuple[int, bool]] = []
    prepare = model.prepare

    def checked(collected: Any) -> Any:
        batch = collected.transitions
        used = batch.loss_weight > 0
        assert used.any()
        count, number = batch.obs[..., 0], batch.obs[..., 1].long()
        left = torch.tensor(LENGTHS)[number] - count
        assert torch.equal(batch.num_steps[used].float(), left.clamp(max=3)[used])
        assert (batch.reward[used] >= 0).all()
        ready.append((model.env_steps, bool(used.all())))
        return prepare(collected)

    model.prepare = checked
    trainer(tmp_path).fit(model, datamodule=data)
    assert ready[0][0] == 20  # the second iteration brings 40 steps of environments
    assert model.env_steps == 400


def test_an_opponent_of_a_checkpoint_acts_and_does_not_learn(tmp_path: Path) -> None:
    path = tmp_path / "old.ckpt"
    first = relay_data(TENSORS, rollout_length=5)
    lightning.seed_everything(1, verbose=False)
    run = trainer(tmp_path, max_steps=2)
    run.fit(small_ppo(first), datamodule=first)
    run.save_checkpoint(path)
    opponent = partial(CheckpointPolicy, checkpoint=str(path))

    data = relay_data(TENSORS, rollout_length=5, policy_group=[0, 1, 1], opponents=[opponent])
    assert data.spaces["num_agents"] == 1
    before = weights_hash(data.agents.opponents(torch.device("cpu"))[0].policy)
    model = fitted(tmp_path, data, val_check_interval=4)

    assert model.env_steps == 160
    assert weights_hash(data.agents.opponents(torch.device("cpu"))[0].policy) == before != weights_hash(model)
    assert data.collector is None
    with pytest.raises(ConfigurationError, match=r"was trained with obs_shape \[?\(?3.*the agent has \(7"):
        other = relay_data(
            TENSORS, append_obs=["agent_id", "last_reward"], policy_group=[0, 1, 1], opponents=[opponent]
        )
        other.agents.opponents(torch.device("cpu"))


def test_opponents_need_groups() -> None:
    with pytest.raises(ConfigurationError, match=r"data\.policy_group does not say whom they play"):
        agents_data(policy_group=None)
