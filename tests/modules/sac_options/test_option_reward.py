"""Options with rewards of their own seek them; the choice among options maximises the task's reward."""

from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import Obs, ReplayBatch
from datamodules.replay import ReplayDataModule
from modules.networks.heads.twin_critic import TwinMLP
from modules.networks.mlp import MLP
from modules.sac_options.controller import OptionController
from modules.sac_options.option_record import OptionRecord
from modules.sac_options.option_reward import check_option_rewards, rewards_of_options
from modules.sac_options.sac_options import SACOptions
from tests.modules.sac_options.test_sac_options import ROWS, minibatches, options
from tests.support.small_runs import trainer

SEEKS = ["reward_a", "reward_b", "task"]


def seeking(updates: int) -> Any:
    """Return minibatches in which option w is paid for action w, and the task pays for action 4."""
    batch = minibatches("discrete", updates, 3)
    own = (batch.action.unsqueeze(-1) == torch.arange(3)).float()
    return batch._replace(return_=(batch.action == 4).float(), extras=batch.extras | {"option_reward": own})


def test_every_option_learns_what_its_reward_pays():
    model = options("discrete", 3, option_rewards=SEEKS, init_temperature=0.1, learn_temperature=False, gamma=0.0)

    batch = seeking(600)
    model.run_updates(batch._replace(discount=batch.discount * 0), None)

    policy = model.option_policies(batch.obs[0], None, torch.zeros(ROWS, 3, dtype=torch.int64))
    assert policy.mode.float().mode(0).values.tolist() == [0, 1, 2]


def test_own_values_go_on_as_if_the_option_never_ended_and_those_of_the_task_use_the_arrival():
    model, batch, alpha = options("discrete", 3, option_rewards=SEEKS), seeking(1).minibatch(0), torch.tensor(0.2)
    executed = OptionRecord.of(batch.extras)

    loss, *_ = model.option_critic_loss(batch, executed, None, alpha)

    arrival, own = model.next_state_values(batch, executed, None, alpha)
    q = model.critic(batch.obs).unflatten(-1, (6, 5))[:, torch.arange(ROWS), :, batch.action]
    q = q if q.shape[0] == 2 else q.movedim(0, 1)
    following = batch.discount.unsqueeze(-1)
    task_target = batch.return_.unsqueeze(-1) + following * arrival.upon_arrival
    own_target = batch.extras["option_reward"] + following * own
    errors = (q - torch.cat([task_target, own_target], 1)).square()
    assert loss.item() == pytest.approx(errors.sum(-1).sum(0).mean().item() / 3, rel=1e-5)


def replay(reward_key: Tensor) -> ReplayBatch:
    nothing: Any = None
    return ReplayBatch(
        obs=torch.zeros(1, 2, 1), action=torch.tensor([[3, 4]]), reward=nothing, num_steps=nothing, terminated=nothing,
        next_obs=torch.ones(1, 2, 1), extras={"reward_key": reward_key}, next_masks={}, loss_weight=nothing,
        indices=nothing,
    )  # fmt: skip


class ActionTimesTask:
    """A reward of one's own."""

    def reward(self, obs: Obs, action: Tensor, next_obs: Obs, task: Tensor) -> Tensor:
        return task * action


def test_rewards_are_the_environments_the_tasks_or_an_objects():
    task = torch.tensor([[0.5, 0.25]])

    rewards = rewards_of_options(
        ["reward_key", "task", ActionTimesTask()],
        replay(torch.tensor([[1.0, 0.0]])),
        task,
    )

    assert rewards.tolist() == [[[1.0, 0.5, 1.5], [0.0, 0.25, 1.0]]]


def test_a_reward_that_the_environment_does_not_report_is_refused():
    with pytest.raises(ConfigurationError, match=r"reports no reward_door .* it has \['reward_key'\]"):
        rewards_of_options(["reward_door"], replay(torch.zeros(1, 2)), torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("rewards", "learned", "said"),
    [
        (["task"], True, "one for each of the 2 options"),
        (["key", "task"], True, "begins with reward_"),
        (["task", "task"], False, "is for learned options of discrete actions"),
    ],
)
def test_rewards_that_do_not_fit_the_options_are_refused(rewards: list[Any], learned: bool, said: str):
    with pytest.raises(ConfigurationError, match=said):
        check_option_rewards(rewards, 2, learned)


def test_the_rewards_of_an_environment_reach_the_updates(tmp_path: Path):
    lightning.seed_everything(1, verbose=False)
    settings: dict[str, Any] = {"num_envs": 4, "train_freq": 2, "batch_size": 16, "replay_ratio": 2, "capacity": 1000}
    data = ReplayDataModule("KeyDoor-v0", learning_starts=8, total_env_steps=80, eval_episodes=1, **settings)
    nets = {"network": partial(MLP, hidden=(16,)), "critic": partial(TwinMLP, hidden=(16,))}
    controller = partial(OptionController, network=nets["network"])
    model = SACOptions(data.spaces, num_options=2, option_rewards=["reward_key", "task"], controller=controller, **nets)

    trainer(tmp_path).fit(model, datamodule=data)

    stored = data.dataset.replay
    assert stored is not None and "extras/reward_key" in stored.ring.columns and model.updates > 0
