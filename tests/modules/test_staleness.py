"""Collecting the next rollout while learning: a lag of one, corrected for, and the same run every time."""

import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import lightning
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from datamodules.rollout import RolloutData
from datamodules.types import Rollout, UsageError
from modules.functional.returns import vtrace
from modules.networks import LSTM
from modules.ppo import PPO, PPOBatch
from modules.pqn import PQN
from modules.reconsidering import reconsidered
from tests.modules.test_loop import SaveAt, SaveAtTheEnd
from tests.training import cartpole_data, fitted, small_ppo, snake_data, trainer, weights_hash

STALE = {"staleness": 1}


class Dated(PPO):
    """Stores with every decision how many iterations its weights had learned from."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.register_buffer("learned", torch.zeros(()))
        self.collected: list[list[float]] = []
        self.ratios: list[float] = []

    def act(self, *args: Any, **kwargs: Any) -> Any:
        decision, state = super().act(*args, **kwargs)
        dated = self.learned.expand(len(decision.action))
        return decision._replace(extras=decision.extras | {"learned": dated}), state

    def prepare(self, rollout: Rollout) -> PPOBatch:
        self.collected.append(rollout.extras["learned"].unique().tolist())
        batch = super().prepare(rollout)
        now = self.actor(self.features(batch)[0], batch.mask).log_prob(batch.action)
        self.ratios.append(float((now - batch.log_prob).abs().max()))
        return batch

    def tick(self, *args: Any) -> None:
        super().tick(*args)
        self.learned = self.learned + 1  # another tensor, as a user's buffer may become


def dated(root: Path, data: Any, *callbacks: Callback, **changes: Any) -> Dated:
    lightning.seed_everything(1, verbose=False)
    model = Dated(data.spaces, **{"passes": 2, "normalize_obs": True, "learning_rate": 1e-2, **changes})
    trainer(root, *callbacks).fit(model, datamodule=data)
    return model


@pytest.mark.parametrize("make_data", [snake_data, cartpole_data, partial(cartpole_data, backend="pool")])
def test_every_rollout_but_the_first_is_of_the_policy_of_one_iteration_before(tmp_path: Path, make_data: Any) -> None:
    model = dated(tmp_path, make_data(**STALE))

    assert model.collected == [[0.0], *([float(n)] for n in range(9))]
    assert model.latest["rollout/policy_lag"] == 1
    assert (model.global_step, model.env_steps) == (10, make_data().total_env_steps)


@pytest.mark.parametrize("changes", [{}, {"shared": True}, {"shared": True, "network": partial(LSTM, hidden=8)}])
def test_the_ratio_that_is_clipped_is_to_the_policy_before_the_update(tmp_path: Path, changes: Any) -> None:
    model = dated(tmp_path, cartpole_data(**STALE, backend="vector", num_envs=8), minibatches=4, **changes)

    assert max(model.ratios) < 1e-5


class Kept(Callback):
    """Keeps the last rollout that was collected, as the collector wrote it."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.rollout = trainer.datamodule.collector.collect()


@pytest.mark.parametrize("shared", [False, True])
def test_a_rollout_of_the_same_weights_is_reconsidered_to_what_it_is(tmp_path: Path, shared: bool) -> None:
    data, kept = snake_data(), Kept()
    model = PPO(data.spaces, shared=shared, minibatches=1)
    trainer(tmp_path, kept).fit(model, datamodule=data)
    model = PPO(data.spaces, shared=shared) if shared else model

    now, log_ratio = reconsidered(model, kept.rollout)
    again, none = reconsidered(model, now)

    assert log_ratio.abs().max() > 0 and none.abs().max() < 1e-6
    assert all(torch.allclose(again.extras[name], leaf, atol=1e-6) for name, leaf in now.extras.items())


def test_what_is_learned_from_is_v_trace(tmp_path: Path) -> None:
    data, kept = snake_data(), Kept()
    model = PPO(data.spaces, minibatches=1, learning_rate=1e-2)
    trainer(tmp_path, kept).fit(model, datamodule=data)
    data.staleness, rollout = 1, kept.rollout

    batch = model.prepare(rollout)

    def log_prob(parameters: Tensor) -> Tensor:
        return torch.log_softmax(parameters, -1).gather(-1, rollout.action.unsqueeze(-1)).squeeze(-1)

    value = model.value(rollout.obs.flatten(0, 1)).view(9, 16)
    policy = model.actor(model.network(rollout.obs[:-1].flatten(0, 1), {}, rollout.reset)[0]).parameters.view(8, 16, -1)
    log_ratio = log_prob(policy) - log_prob(rollout.extras["policy"])
    flags = (rollout.terminated, rollout.truncated)
    advantage, target = vtrace(
        log_ratio, rollout.reward, value[:-1], model.next_value(rollout, value), *flags, gamma=0.99, lam=0.95
    )
    assert log_ratio.abs().max() > 0.01
    assert torch.allclose(batch.advantage.view(8, 16), advantage, atol=1e-5)
    assert torch.allclose(batch.target.view(8, 16), target, atol=1e-5)


@pytest.mark.parametrize("make_data", [snake_data, cartpole_data])
def test_the_same_seed_gives_the_same_weights_and_others_than_without_staleness(tmp_path: Path, make_data: Any) -> None:
    runs = [weights_hash(fitted(tmp_path, make_data(staleness=staleness))) for staleness in (1, 1, 0)]

    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("iteration", [1, 2, 4, 9])
def test_resume_equals_the_uninterrupted_run_bit_for_bit(tmp_path: Path, iteration: int) -> None:
    path = tmp_path / "k.ckpt"
    uninterrupted = fitted(tmp_path, snake_data(**STALE))
    saving = fitted(tmp_path, snake_data(**STALE), SaveAt(iteration, path))
    resumed = fitted(tmp_path, snake_data(**STALE), ckpt_path=path)

    assert weights_hash(saving) == weights_hash(resumed) == weights_hash(uninterrupted)
    assert resumed.latest["rollout/policy_lag"] == 1


@pytest.mark.parametrize("save", [lambda path: SaveAt(10, path), SaveAtTheEnd])
def test_a_finished_run_can_be_extended(tmp_path: Path, save: Any) -> None:
    path, longer = tmp_path / "end.ckpt", {"total_env_steps": 1920, **STALE}
    whole = fitted(tmp_path, snake_data(**longer), learning_rate_schedule="constant")
    fitted(tmp_path, snake_data(**STALE), save(path), learning_rate_schedule="constant")
    extended = fitted(tmp_path, snake_data(**longer), ckpt_path=path, learning_rate_schedule="constant")

    assert weights_hash(extended) == weights_hash(whole)


class Partial(PPO):
    """Leaves its value network out of checkpoints."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.strict_loading = False

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {name: leaf for name, leaf in super().state_dict(*args, **kwargs).items() if "value" not in name}


def test_a_module_that_saves_a_part_of_itself_resumes(tmp_path: Path) -> None:
    path = tmp_path / "k.ckpt"
    for ckpt_path in (None, path):
        data = snake_data(**STALE)
        model = Partial(data.spaces, minibatches=1)
        trainer(tmp_path, SaveAt(4, path)).fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
        assert model.global_step == 10


def test_staleness_can_be_changed_at_a_resume(tmp_path: Path) -> None:
    for before, after in ((0, 1), (1, 0)):
        path = tmp_path / f"{before}.ckpt"
        fitted(tmp_path, snake_data(staleness=before), SaveAt(4, path, stop=True))
        resumed = fitted(tmp_path, snake_data(staleness=after), ckpt_path=path)
        assert resumed.global_step == 10


def test_evaluation_sees_the_weights_of_now_and_disturbs_nothing(tmp_path: Path) -> None:
    without = fitted(tmp_path, snake_data(**STALE))
    evaluated = fitted(tmp_path, snake_data(**STALE), val_check_interval=2)

    assert "eval/return_mean" in evaluated.latest
    assert weights_hash(without) == weights_hash(evaluated)


class Noisy(PPO):
    """Notes a number of its own at every decision that is part of a rollout, whoever makes it."""

    seen: ClassVar[list[int]] = []

    def act(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("greedy"):
            self.seen.append(self.env_steps)
        return super().act(*args, **kwargs)


def test_the_twin_knows_the_numbers_that_the_weights_had(tmp_path: Path) -> None:
    Noisy.seen.clear()
    data = snake_data(**STALE)
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


class Locked(PPO):
    """Has a network that nobody can copy."""

    def make_networks(self, *args: Any) -> None:
        super().make_networks(*args)
        self.network.lock = threading.Lock()


def test_networks_that_cannot_be_copied_are_refused_in_one_sentence(tmp_path: Path) -> None:
    data = snake_data(**STALE)
    with pytest.raises(UsageError, match=r"acts by a copy of its networks, .* cannot be copied .*: set it to 0\."):
        trainer(tmp_path).fit(Locked(data.spaces), datamodule=data)


def test_the_weights_that_collect_ahead_are_in_a_checkpoint_once(tmp_path: Path) -> None:
    path = tmp_path / "k.ckpt"
    fitted(tmp_path, snake_data(**STALE), SaveAt(4, path))

    saved = torch.load(path, weights_only=True)["RolloutData"]

    assert saved["ahead"]["learned"] == 3 and "ahead" not in saved["ranks"][0]


MEETING = threading.Barrier(2)


class Meeting(CartPoleEnv):
    """From its second rollout of four steps on, the last step of a rollout goes on only while somebody learns."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps > 8 and self.steps % 4 == 0:
            MEETING.wait(timeout=20)
        return super().step(action)


class Met(PPO):
    """Goes on with an update only while somebody collects."""

    def update(self, batch: PPOBatch) -> Any:
        if 0 < self.global_step < self.data.iterations - 1:
            MEETING.wait(timeout=20)
        return super().update(batch)


def test_the_next_rollout_is_collected_while_the_last_one_is_learned_from(tmp_path: Path) -> None:
    gym.register("Meeting-v0", Meeting, max_episode_steps=500)
    data = cartpole_data(**STALE, env="Meeting-v0", num_envs=1, horizon=4, total_env_steps=40)
    trainer(tmp_path).fit(Met(data.spaces, minibatches=1), datamodule=data)


class Breaking(CartPoleEnv):
    """Fails in its twentieth step."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 20:
            raise RuntimeError("the cart has lost a wheel")
        return super().step(action)


def collecting() -> bool:
    """Whether a thread that collects is alive."""
    return any(thread.name.startswith("collect") for thread in threading.enumerate())


def test_what_an_environment_raises_ends_the_run_and_the_thread(tmp_path: Path) -> None:
    gym.register("Breaking-v0", Breaking, max_episode_steps=500)
    data = cartpole_data(**STALE, env="Breaking-v0", num_envs=1, horizon=4, total_env_steps=400)
    with pytest.raises(RuntimeError, match="lost a wheel"):
        trainer(tmp_path).fit(PPO(data.spaces, minibatches=1), datamodule=data)
    assert not collecting()


class Sleeping(CartPoleEnv):
    """Sleeps in its fourteenth step, and fails when it wakes."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 14:
            time.sleep(3)
            raise RuntimeError("the cart has lost a wheel")
        return super().step(action)


class Ends(PPO):
    """Ends its third iteration by an error."""

    error: ClassVar[BaseException]

    def update(self, batch: PPOBatch) -> Any:
        if self.global_step == 2:
            raise self.error
        return super().update(batch)


def sleeping(**changes: Any) -> RolloutData:
    gym.register("Sleeping-v0", Sleeping, max_episode_steps=500)
    return cartpole_data(**STALE, env="Sleeping-v0", num_envs=1, horizon=4, total_env_steps=400, **changes)


@pytest.mark.parametrize(("error", "seen"), [(ValueError(), ValueError), (KeyboardInterrupt(), SystemExit)])
def test_an_error_and_an_interrupt_wait_for_no_environment(tmp_path: Path, error: Any, seen: Any) -> None:
    data, Ends.error = sleeping(), error
    began = time.perf_counter()

    with pytest.raises(seen):
        trainer(tmp_path).fit(Ends(data.spaces, minibatches=1), datamodule=data)

    assert time.perf_counter() - began < 2.5


def test_no_rollout_is_begun_that_nobody_learns_from(tmp_path: Path) -> None:
    began = time.perf_counter()

    trainer(tmp_path, max_steps=3).fit(PPO((data := sleeping()).spaces, minibatches=1), datamodule=data)

    assert time.perf_counter() - began < 2.5


class StopAt(Callback):
    """Stops a run that would go on."""

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        trainer.should_stop = trainer.global_step == 3


def test_what_failed_in_a_rollout_that_nobody_learns_from_is_a_warning(tmp_path: Path) -> None:
    data = sleeping()

    with pytest.warns(UserWarning, match="nothing is learned, failed: RuntimeError.*lost a wheel"):
        trainer(tmp_path, StopAt(), limit_val_batches=0).fit(PPO(data.spaces, minibatches=1), datamodule=data)


@pytest.mark.parametrize("changes", [{}, {"max_steps": 4}])
def test_the_thread_ends_with_the_run(tmp_path: Path, changes: Any) -> None:
    fitted(tmp_path, snake_data(**STALE), **changes)
    assert not collecting()


def test_an_algorithm_that_does_not_correct_for_it_refuses(tmp_path: Path) -> None:
    data = snake_data(**STALE)
    with pytest.raises(UsageError, match=r"staleness is 1, but PQN learns only from what its policy of now collected"):
        trainer(tmp_path).fit(PQN(data.spaces), datamodule=data)


def test_more_than_one_is_refused() -> None:
    with pytest.raises(UsageError, match=r"data\.staleness is 2; give 0 .* or 1"):
        snake_data(staleness=2)


def test_a_twin_acts_by_weights_of_its_own() -> None:
    model = small_ppo(snake_data())
    twin = model.twin()

    assert weights_hash(twin) == weights_hash(model)
    with torch.no_grad():
        twin.actor.linear.weight.add_(1)
    assert weights_hash(twin) != weights_hash(model)
