"""Collecting ahead: beside the learning, in a thread that ends with the run, whatever ends it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import pytest
from gymnasium.envs.classic_control import CartPoleEnv
from lightning.pytorch.callbacks import Callback

from datamodules.rollout import RolloutDataModule
from modules.ppo.ppo import PPO, PPOBatch
from tests.support.small_runs import cartpole_data, fitted, snake_data, trainer

LAGGED = {"policy_lag": 1}
MEETING = threading.Barrier(2)


class Meeting(CartPoleEnv):
    """From its second rollout of four steps on, the last step of a rollout goes on only while somebody learns."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps > 8 and self.steps % 4 == 0:
            MEETING.wait(timeout=100)
        return super().step(action)


gym.register("Meeting-v0", Meeting, max_episode_steps=500)


class Met(PPO):
    """Goes on with an update only while somebody collects."""

    def update(self, batch: PPOBatch) -> Any:
        if 0 < self.global_step < self.data.iterations - 1:
            MEETING.wait(timeout=100)
        return super().update(batch)


def test_the_next_rollout_is_collected_while_the_last_one_is_learned_from(tmp_path: Path) -> None:
    data = cartpole_data(**LAGGED, env="Meeting-v0", num_envs=1, rollout_length=4, total_env_steps=40)
    trainer(tmp_path).fit(Met(data.spaces, num_minibatches=1), datamodule=data)


class Breaking(CartPoleEnv):
    """Fails in its twentieth step."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 20:
            raise RuntimeError("the cart has lost a wheel")
        return super().step(action)


gym.register("Breaking-v0", Breaking, max_episode_steps=500)


def collecting() -> bool:
    """Whether a thread that collects is alive."""
    return any(thread.name.startswith("collect") for thread in threading.enumerate())


def test_what_an_environment_raises_ends_the_run_and_the_thread(tmp_path: Path) -> None:
    data = cartpole_data(**LAGGED, env="Breaking-v0", num_envs=1, rollout_length=4, total_env_steps=400)
    with pytest.raises(RuntimeError, match="lost a wheel"):
        trainer(tmp_path).fit(PPO(data.spaces, num_minibatches=1), datamodule=data)
    assert not collecting()


class Sleeping(CartPoleEnv):
    """Sleeps in its fourteenth step until it is woken, and fails then; nobody wakes it while a run goes on."""

    steps = 0
    woken, slept_out = threading.Event(), threading.Event()

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 14:
            if not self.woken.wait(60):
                self.slept_out.set()
            raise RuntimeError("the cart has lost a wheel")
        return super().step(action)


@pytest.fixture
def nobody_waits() -> Iterator[None]:
    """Fail a test whose run waited for the sleeper."""
    Sleeping.woken.clear(), Sleeping.slept_out.clear()
    yield
    assert not Sleeping.slept_out.is_set()
    Sleeping.woken.set()


gym.register("Sleeping-v0", Sleeping, max_episode_steps=500)


AWAKE = threading.Event()


class Hanging(CartPoleEnv):
    """Hangs in its fourteenth step."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 14:
            AWAKE.wait(100)
        return super().step(action)


gym.register("Hanging-v0", Hanging, max_episode_steps=500)


class Ends(PPO):
    """Ends its third iteration by an error."""

    error: ClassVar[BaseException]

    def update(self, batch: PPOBatch) -> Any:
        if self.global_step == 2:
            raise self.error
        return super().update(batch)


def sleeping(**changes: Any) -> RolloutDataModule:
    return cartpole_data(**LAGGED, env="Sleeping-v0", num_envs=1, rollout_length=4, total_env_steps=400, **changes)


@pytest.mark.parametrize(("error", "seen"), [(ValueError(), ValueError), (KeyboardInterrupt(), SystemExit)])
@pytest.mark.usefixtures("nobody_waits")
def test_an_error_and_an_interrupt_wait_for_no_environment(tmp_path: Path, error: Any, seen: Any) -> None:
    data, Ends.error = sleeping(), error

    with pytest.raises(seen):
        trainer(tmp_path).fit(Ends(data.spaces, num_minibatches=1), datamodule=data)


@pytest.mark.usefixtures("nobody_waits")
def test_no_rollout_is_begun_that_nobody_learns_from(tmp_path: Path) -> None:
    trainer(tmp_path, max_steps=3).fit(PPO((data := sleeping()).spaces, num_minibatches=1), datamodule=data)


class StopAt(Callback):
    """Stops a run that would go on."""

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        trainer.should_stop = trainer.global_step == 3


def test_what_failed_in_a_rollout_that_nobody_learns_from_is_a_warning(tmp_path: Path) -> None:
    data = sleeping()
    Sleeping.woken.set()

    with pytest.warns(UserWarning, match="not used, failed: RuntimeError.*lost a wheel"):
        trainer(tmp_path, StopAt(), limit_val_batches=0).fit(PPO(data.spaces, num_minibatches=1), datamodule=data)


def test_a_run_that_stops_leaves_an_environment_behind_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datamodules.collect.prefetching.CLOSE_TIMEOUT", 0.5)
    data = cartpole_data(**LAGGED, env="Hanging-v0", num_envs=1, rollout_length=4, total_env_steps=400)

    with pytest.warns(UserWarning, match=r"did not finish within 0\.5 s: it is abandoned"):
        trainer(tmp_path, StopAt(), limit_val_batches=0).fit(PPO(data.spaces, num_minibatches=1), datamodule=data)

    assert collecting()  # the environment does not come back before it is awake
    AWAKE.set()
    while collecting():
        time.sleep(0.01)


@pytest.mark.parametrize("changes", [{}, {"max_steps": 4}])
def test_the_thread_ends_with_the_run(tmp_path: Path, changes: Any) -> None:
    fitted(tmp_path, snake_data(**LAGGED), **changes)
    assert not collecting()
