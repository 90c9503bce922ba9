"""Collecting the next rollout while learning: a lag of one, corrected for, and the same run every time."""

from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import Rollout
from modules.dqn.pqn import PQN
from modules.functional.returns import vtrace
from modules.networks import LSTM
from modules.ppo.batch import PPOBatch
from modules.ppo.policy_lag import reevaluate, rollout_log_prob
from modules.ppo.ppo import PPO
from tests.modules.base.test_training_loop import SaveAt, SaveAtTheEnd
from tests.support.small_runs import cartpole_data, fitted, snake_data, trainer, weights_hash

LAGGED = {"policy_lag": 1}


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
        now = self.actor(self.torso_features(batch)[0], batch.mask).log_prob(batch.action)
        self.ratios.append(float((now - batch.log_prob).abs().max()))
        return batch

    def end_iteration(self, *args: Any) -> None:
        super().end_iteration(*args)
        self.learned = self.learned + 1  # another tensor, as a user's buffer may become


def dated(root: Path, data: Any, *callbacks: Callback, **changes: Any) -> Dated:
    lightning.seed_everything(1, verbose=False)
    model = Dated(data.spaces, **{"update_epochs": 2, "normalize_obs": True, "learning_rate": 1e-2, **changes})
    trainer(root, *callbacks).fit(model, datamodule=data)
    return model


@pytest.mark.parametrize("make_data", [snake_data, cartpole_data, partial(cartpole_data, backend="pool")])
def test_every_rollout_but_the_first_is_of_the_policy_of_one_iteration_before(tmp_path: Path, make_data: Any) -> None:
    model = dated(tmp_path, make_data(**LAGGED))

    assert model.collected == [[0.0], *([float(n)] for n in range(9))]
    assert model.last_logged["rollout/policy_lag"] == 1
    assert (model.global_step, model.env_steps) == (10, make_data().total_env_steps)


@pytest.mark.parametrize(
    "changes", [{}, {"share_torso": True}, {"share_torso": True, "network": partial(LSTM, hidden=8)}]
)
def test_the_ratio_that_is_clipped_is_to_the_policy_before_the_update(tmp_path: Path, changes: Any) -> None:
    model = dated(tmp_path, cartpole_data(**LAGGED, backend="vector", num_envs=8), num_minibatches=4, **changes)

    assert max(model.ratios) < 1e-5


class Kept(Callback):
    """Keeps the last rollout that was collected, as the collector wrote it."""

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.rollout = trainer.datamodule.collector.collect()


@pytest.mark.parametrize("share_torso", [False, True])
def test_a_rollout_of_the_same_weights_is_reconsidered_to_what_it_is(tmp_path: Path, share_torso: bool) -> None:
    data, kept = snake_data(), Kept()
    model = PPO(data.spaces, share_torso=share_torso, num_minibatches=1)
    trainer(tmp_path, kept).fit(model, datamodule=data)
    model = PPO(data.spaces, share_torso=share_torso) if share_torso else model

    now = reevaluate(model, kept.rollout)
    again = reevaluate(model, now)
    log_ratio = rollout_log_prob(model, now) - rollout_log_prob(model, kept.rollout)
    none = rollout_log_prob(model, again) - rollout_log_prob(model, now)

    assert log_ratio.abs().max() > 0 and none.abs().max() < 1e-6
    assert all(torch.allclose(again.extras[name], leaf, atol=1e-6) for name, leaf in now.extras.items())


def test_what_is_learned_from_is_v_trace(tmp_path: Path) -> None:
    data, kept = snake_data(), Kept()
    model = PPO(data.spaces, num_minibatches=1, learning_rate=1e-2)
    trainer(tmp_path, kept).fit(model, datamodule=data)
    data.policy_lag, rollout = 1, kept.rollout

    batch = model.prepare(rollout)

    def log_prob(parameters: Tensor) -> Tensor:
        return torch.log_softmax(parameters, -1).gather(-1, rollout.action.unsqueeze(-1)).squeeze(-1)

    value = model.value(rollout.obs.flatten(0, 1)).view(9, 16)
    policy = model.actor(model.network(rollout.obs[:-1].flatten(0, 1), {}, rollout.episode_start)[0]).parameters.view(
        8, 16, -1
    )
    log_ratio = log_prob(policy) - log_prob(rollout.extras["policy"])
    flags = (rollout.terminated, rollout.truncated)
    advantage, target = vtrace(
        log_ratio, rollout.reward, value[:-1], model.next_value(rollout, value), *flags, gamma=0.99, lam=0.95
    )
    assert log_ratio.abs().max() > 0.01
    assert torch.allclose(batch.advantage.view(8, 16), advantage, atol=1e-5)
    assert torch.allclose(batch.target.view(8, 16), target, atol=1e-5)


@pytest.mark.parametrize("make_data", [snake_data, cartpole_data])
def test_the_same_seed_gives_the_same_weights_and_others_than_without_policy_lag(
    tmp_path: Path, make_data: Any
) -> None:
    runs = [weights_hash(fitted(tmp_path, make_data(policy_lag=policy_lag))) for policy_lag in (1, 1, 0)]

    assert runs[0] == runs[1] != runs[2]


@pytest.mark.parametrize("iteration", [1, 2, 4, 9])
def test_resume_equals_the_uninterrupted_run_bit_for_bit(tmp_path: Path, iteration: int) -> None:
    path = tmp_path / "k.ckpt"
    uninterrupted = fitted(tmp_path, snake_data(**LAGGED))
    saving = fitted(tmp_path, snake_data(**LAGGED), SaveAt(iteration, path))
    resumed = fitted(tmp_path, snake_data(**LAGGED), ckpt_path=path)

    assert weights_hash(saving) == weights_hash(resumed) == weights_hash(uninterrupted)
    assert resumed.last_logged["rollout/policy_lag"] == 1


@pytest.mark.parametrize("save", [lambda path: SaveAt(10, path), SaveAtTheEnd])
def test_a_finished_run_can_be_extended(tmp_path: Path, save: Any) -> None:
    path, longer = tmp_path / "end.ckpt", {"total_env_steps": 1920, **LAGGED}
    whole = fitted(tmp_path, snake_data(**longer), learning_rate_schedule="constant")
    fitted(tmp_path, snake_data(**LAGGED), save(path), learning_rate_schedule="constant")
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
        data = snake_data(**LAGGED)
        model = Partial(data.spaces, num_minibatches=1)
        trainer(tmp_path, SaveAt(4, path)).fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
        assert model.global_step == 10


def test_the_policy_lag_can_be_changed_at_a_resume(tmp_path: Path) -> None:
    for before, after in ((0, 1), (1, 0)):
        path = tmp_path / f"{before}.ckpt"
        fitted(tmp_path, snake_data(policy_lag=before), SaveAt(4, path, stop=True))
        resumed = fitted(tmp_path, snake_data(policy_lag=after), ckpt_path=path)
        assert resumed.global_step == 10


def test_evaluation_sees_the_weights_of_now_and_disturbs_nothing(tmp_path: Path) -> None:
    without = fitted(tmp_path, snake_data(**LAGGED))
    evaluated = fitted(tmp_path, snake_data(**LAGGED), val_check_interval=2)

    assert "eval/return_mean" in evaluated.last_logged
    assert weights_hash(without) == weights_hash(evaluated)


def test_the_weights_that_collect_ahead_are_in_a_checkpoint_once(tmp_path: Path) -> None:
    path = tmp_path / "k.ckpt"
    fitted(tmp_path, snake_data(**LAGGED), SaveAt(4, path))

    saved = torch.load(path, weights_only=True)["RolloutDataModule"]

    assert saved["ahead"]["learned"] == 3 and "ahead" not in saved["ranks"][0]


def test_an_algorithm_that_does_not_correct_for_it_refuses(tmp_path: Path) -> None:
    data = snake_data(**LAGGED)
    with pytest.raises(
        ConfigurationError, match=r"policy_lag is 1, but PQN learns only from rollouts of its current policy"
    ):
        trainer(tmp_path).fit(PQN(data.spaces), datamodule=data)


def test_more_than_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"data\.policy_lag is 2; give 0 .* or 1"):
        snake_data(policy_lag=2)
