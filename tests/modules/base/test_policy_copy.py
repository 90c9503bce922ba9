"""Twins: they act by weights of their own, and share what is not a weight."""

import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput
from modules.ppo.ppo import PPO
from tests.support.small_runs import fitted, small_ppo, snake_data, trainer, weights_hash


class Noisy(PPO):
    """Notes a number of its own at every decision that is part of a rollout, whoever makes it."""

    seen: ClassVar[list[int]] = []

    def act(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("greedy"):
            self.seen.append(self.env_steps)
        return super().act(*args, **kwargs)


def test_the_twin_knows_the_numbers_that_the_weights_had(tmp_path: Path) -> None:
    Noisy.seen.clear()
    data = snake_data(policy_lag=1)
    trainer(tmp_path).fit(Noisy(data.spaces, num_minibatches=1), datamodule=data)

    assert sorted(set(Noisy.seen)) == [128 * n for n in range(9)]


class Heard(Callback):
    """Counts the calls of a network through a hook of its own, and holds what nobody can copy."""

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.calls, self.lock = 0, threading.Lock()
        pl_module.network.register_forward_hook(self.hear)

    def hear(self, *_: Any) -> None:
        self.calls += 1


def test_hooks_hear_the_twin_as_they_hear_the_module(tmp_path: Path) -> None:
    calls = []
    for policy_lag in (0, 1):
        heard = Heard()
        fitted(tmp_path, snake_data(policy_lag=policy_lag), heard)
        calls.append(heard.calls)

    assert calls[1] == calls[0] + 10  # once more an iteration, to reconsider


class Asked(Callback):
    """Asks a twin the short way and the long way."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        state, policy_copy = trainer.datamodule.collector.state, pl_module.policy_copy()
        self.short = policy_copy.replaced_methods
        inputs = PolicyInput(state.obs, {}, state.episode_start)
        self.short_way = policy_copy.act(inputs, greedy=True)[0].extras["policy"]
        policy_copy.restore_methods_()
        self.long_way = policy_copy.act(inputs, greedy=True)[0].extras["policy"]


def test_a_twin_decides_the_short_way_where_its_module_does(tmp_path: Path) -> None:
    asked = Asked()
    fitted(tmp_path, snake_data(policy_lag=1), asked)

    assert asked.short == ("policy_and_value",)
    assert torch.allclose(asked.short_way, asked.long_way, atol=1e-6)


class Locked(PPO):
    """Has a network that nobody can copy."""

    def make_networks(self, *args: Any) -> None:
        super().make_networks(*args)
        self.network.lock = threading.Lock()


def test_networks_that_cannot_be_copied_are_refused_in_one_sentence(tmp_path: Path) -> None:
    data = snake_data(policy_lag=1)
    with pytest.raises(
        ConfigurationError, match=r"needs a copy of .* networks, but they cannot be copied .*: set it to 0\."
    ):
        trainer(tmp_path).fit(Locked(data.spaces), datamodule=data)


def test_a_twin_acts_by_weights_of_its_own() -> None:
    model = small_ppo(snake_data())
    policy_copy = model.policy_copy()

    assert weights_hash(policy_copy) == weights_hash(model)
    with torch.no_grad():
        policy_copy.actor.linear.weight.add_(1)
    assert weights_hash(policy_copy) != weights_hash(model)
