"""Twins: they act by weights of their own, and share what is not a weight."""

import threading
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from datamodules.core.errors import UsageError
from modules.manual_backward.ppo import Deciding
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
    data = snake_data(staleness=1)
    trainer(tmp_path).fit(Noisy(data.spaces, minibatches=1), datamodule=data)

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
    for staleness in (0, 1):
        heard = Heard()
        fitted(tmp_path, snake_data(staleness=staleness), heard)
        calls.append(heard.calls)

    assert calls[1] == calls[0] + 10  # once more an iteration, to reconsider


class Asked(Callback):
    """Asks a twin the short way and the long way."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        live, twin = trainer.datamodule.collector.live, pl_module.twin()
        self.short = type(twin.written_out)
        self.short_way = twin.act(live.obs, {}, live.reset, greedy=True)[0].extras["policy"]
        twin.written_out = None
        self.long_way = twin.act(live.obs, {}, live.reset, greedy=True)[0].extras["policy"]


def test_a_twin_decides_the_short_way_where_its_module_does(tmp_path: Path) -> None:
    asked = Asked()
    fitted(tmp_path, snake_data(staleness=1), asked)

    assert asked.short is Deciding
    assert torch.allclose(asked.short_way, asked.long_way, atol=1e-6)


class Locked(PPO):
    """Has a network that nobody can copy."""

    def make_networks(self, *args: Any) -> None:
        super().make_networks(*args)
        self.network.lock = threading.Lock()


def test_networks_that_cannot_be_copied_are_refused_in_one_sentence(tmp_path: Path) -> None:
    data = snake_data(staleness=1)
    with pytest.raises(UsageError, match=r"acts by a copy of its networks, .* cannot be copied .*: set it to 0\."):
        trainer(tmp_path).fit(Locked(data.spaces), datamodule=data)


def test_a_twin_acts_by_weights_of_its_own() -> None:
    model = small_ppo(snake_data())
    twin = model.twin()

    assert weights_hash(twin) == weights_hash(model)
    with torch.no_grad():
        twin.actor.linear.weight.add_(1)
    assert weights_hash(twin) != weights_hash(model)
