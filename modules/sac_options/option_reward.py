"""Rewards of options: what each option seeks, beside the reward of the task."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import Obs, ReplayBatch

PREFIX = "reward_"
"""Prefix of the rewards that an environment reports in its info."""

TASK = "task"
"""Name of the task's reward."""


class OptionReward(Protocol):
    """Interface of an option's reward: a batched function of a transition without state, named by its `class_path`."""

    def reward(self, obs: Obs, action: Tensor, next_obs: Obs, task: Tensor) -> Tensor:
        """Return the option's reward, `[U, N]` as the task's; observations are not normalised."""
        ...


def check_option_rewards(rewards: Sequence[str | OptionReward] | None, options: int, learned: bool) -> None:
    """Check that every one of the learned options of discrete actions has a reward.

    Raises: ConfigurationError otherwise.
    """
    if rewards is None:
        return
    if not learned:
        raise ConfigurationError(
            "model.option_rewards is for learned options of discrete actions: leave it out with"
            " model.scripted_options and for a Box."
        )
    wrong = [each for each in rewards if isinstance(each, str) and each != TASK and not each.startswith(PREFIX)]
    if len(rewards) != options or wrong:
        raise ConfigurationError(
            f"model.option_rewards is {list(rewards)}; give one for each of the {options} options: {TASK}, a name"
            f" of the environment's info that begins with {PREFIX}, or a class_path."
        )


def rewards_of_options(rewards: Sequence[str | OptionReward], batch: ReplayBatch, task: Tensor) -> Tensor:
    """Return the reward of every option, `[U, N, K]`.

    Args:
        task: the task's reward, `[U, N]`.

    Raises: ConfigurationError if the environment does not report a named reward.
    """
    columns = []
    for each in rewards:
        if each == TASK:
            columns.append(task)
        elif isinstance(each, str):
            if each not in batch.extras:
                there = sorted(name for name in batch.extras if name.startswith(PREFIX))
                raise ConfigurationError(
                    f"The environment reports no {each} for model.option_rewards; it has {there}. On-device"
                    " environments report rewards in `info`."
                )
            columns.append(batch.extras[each])
        else:
            columns.append(each.reward(batch.obs, batch.action, batch.next_obs, task))
    return torch.stack(columns, -1)
