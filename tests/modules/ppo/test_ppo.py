"""PPO: every setting acts, bad values are refused, and small problems with known answers are solved."""

from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import lightning
import numpy as np
import pytest
import torch

from datamodules.core.errors import ConfigurationError
from datamodules.core.types import MetricVector, Rollout
from datamodules.rollout import RolloutDataModule
from modules.networks import MLP
from modules.ppo.ppo import METRICS, PPO
from tests.support.rollout_fixtures import Writer
from tests.support.small_runs import cartpole_data, fitted, small_ppo, snake_data, trainer, weights_hash


class Identity(gym.Env):
    """Ten steps of guessing the number that is shown; +1 a right guess. SB3's oldest check."""

    def __init__(self, kind: str = "discrete"):
        self.kind = kind
        discrete, box = gym.spaces.Discrete(4), gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = discrete if kind == "discrete" else box
        self.observation_space = self.action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 10
        return self._draw(), {}

    def _draw(self) -> Any:
        if self.kind == "discrete":
            self.shown: Any = int(self.np_random.integers(4))
        else:
            self.shown = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.shown

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward = float(action == self.shown) if self.kind == "discrete" else -float(abs(action - self.shown)[0])
        self.left -= 1
        return self._draw(), reward, False, self.left == 0, {}


class Endless(gym.Env):
    """Reward 1 for ever, cut after eight steps by a time limit that the observation does not show."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        return np.ones(1, np.float32), 1.0, False, self.time == 8, {}


def learned(root: Path, data: RolloutDataModule, **settings: Any) -> PPO:
    lightning.seed_everything(1, verbose=False)
    model = PPO(data.spaces, **settings)
    trainer(root).fit(model, datamodule=data)
    return model


def evaluated(root: Path, model: PPO, data: RolloutDataModule) -> float:
    return float(trainer(root).validate(model, datamodule=data, verbose=False)[0]["eval/return_mean"])


@pytest.mark.parametrize(("kind", "score"), [("discrete", 9.0), ("box", -1.5)])
def test_the_identity_environment_is_solved(tmp_path: Path, kind: str, score: float) -> None:
    data = RolloutDataModule(
        f"{__name__}.Identity", env_kwargs={"kind": kind}, num_envs=8, rollout_length=32, total_env_steps=12_800
    )
    settings = {"learning_rate": 5e-3, "learning_rate_schedule": "linear", "update_epochs": 4, "num_minibatches": 4}
    model = learned(tmp_path, data, gamma=0.5, **settings)
    assert evaluated(tmp_path, model, data) >= score


def test_the_value_of_an_endless_reward_under_a_time_limit_is_one_over_one_minus_gamma(tmp_path: Path) -> None:
    data = RolloutDataModule(f"{__name__}.Endless", num_envs=4, rollout_length=16, total_env_steps=4 * 16 * 150)
    model = learned(
        tmp_path, data, gamma=0.98, gae_lambda=0.95, learning_rate=1e-2, max_grad_norm=10.0, num_minibatches=1
    )
    assert float(model.value(torch.ones(1, 1))) == pytest.approx(50.0, abs=1.0)


CHANGES: dict[str, Any] = {
    "network": lambda obs_shape: MLP(obs_shape, hidden=(8,)),
    "share_torso": True,
    "optimizer": lambda params: torch.optim.SGD(params),
    "learning_rate": 1e-2,
    "learning_rate_schedule": "cosine",
    "gamma": 0.5,
    "gae_lambda": 0.5,
    "update_epochs": 3,
    "num_minibatches": 2,
    "minibatch_order": "strided",
    "clip_range": 1e-3,
    "clip_range_schedule": "linear",
    "value_clip_range": 1e-3,
    "value_loss_coef": 5.0,
    "entropy_coef": 0.5,
    "max_grad_norm": 1e-3,
    "target_kl": 1e-9,
    "normalize_obs": False,
    "normalize_reward": False,
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_setting_acts_on_the_weights(tmp_path: Path, name: str) -> None:
    data, hashes = snake_data(total_env_steps=640), []
    for changes in ({}, {name: CHANGES[name]}):
        lightning.seed_everything(1, verbose=False)
        model = small_ppo(data, **{"update_epochs": 2, "learning_rate": 5e-3, "clip_range": 0.02, **changes})
        trainer(tmp_path).fit(model, datamodule=data)
        hashes.append(weights_hash(model))
    assert hashes[0] != hashes[1]


def test_target_kl_ends_the_passes_of_an_iteration_early(tmp_path: Path) -> None:
    data = snake_data()
    lightning.seed_everything(1, verbose=False)
    model = small_ppo(data, update_epochs=8, target_kl=1e-9)
    trainer(tmp_path).fit(model, datamodule=data)
    assert model.updates < 10 * 8 * 4


@pytest.mark.parametrize(("approx_kl", "update_epochs"), [(1.49, 5), (1.51, 1)])
def test_passes_end_at_one_and_a_half_times_target_kl(approx_kl: float, update_epochs: int) -> None:
    model = small_ppo(snake_data(), update_epochs=5, num_minibatches=1, target_kl=0.01)
    measured = torch.tensor([approx_kl * 0.01 if name == "approx_kl" else 1.0 for name in METRICS])
    model.phases = {"update": lambda batch, order: (measured, None)}  # type: ignore[dict-item, assignment]

    metrics = model.update(Size(8))  # type: ignore[arg-type]

    assert model.updates == update_epochs
    torch.testing.assert_close(metrics.values, measured)


class Size(NamedTuple):
    """All that `update` itself reads of a batch."""

    size: int


def small_normalising() -> PPO:
    """Of the observations that `Writer` makes."""
    data = snake_data()
    data.spaces = {**data.spaces, "obs_shape": (2,)}  # type: ignore[misc]
    return small_ppo(data, gamma=0.5)


def test_only_valid_steps_are_merged_into_the_statistics() -> None:
    model, writer = small_normalising(), Writer()
    writer.invalid = (1,)

    model.after_update(writer.rollout(4)[0])

    assert model.obs_normalizer is not None and model.reward_scaler is not None
    assert model.obs_normalizer.count == model.reward_scaler.returns.count == 3 * 2
    assert model.obs_normalizer.mean.tolist() == pytest.approx([(0 + 2 + 3) / 3, 0.5])
    assert model.reward_scaler.running is not None and model.reward_scaler.running.tolist() == [4.0, 4.0]


@pytest.mark.parametrize(("steps", "expected"), [(0, 0.5 * (0.5 + 2) + 3), (4, 0.5 * (0.5 * (0.5 * 8 + 4) + 5) + 6)])
def test_rewards_run_up_only_from_the_first_step_of_an_episode(steps: int, expected: float) -> None:
    """A resumed run begins new episodes where the environments cannot go on: what was run up before is forgotten."""
    model, writer = small_normalising(), Writer()
    if steps:
        writer.rollout(steps)
    assert model.reward_scaler is not None
    model.reward_scaler.running = torch.tensor([8.0, 8.0], dtype=torch.float64)

    model.after_update(writer.rollout(4 if steps == 0 else 3)[0])

    assert model.reward_scaler.running.tolist() == [expected, expected]


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("gamma", 1.5, r"model\.gamma is 1\.5; it must lie in \[0, 1\]"),
        ("gae_lambda", -0.1, r"model\.gae_lambda is -0\.1"),
        ("learning_rate", 0.0, r"model\.learning_rate is 0\.0; it must be positive"),
        ("update_epochs", 0, r"model\.update_epochs is 0"),
        ("num_minibatches", 0, r"model\.num_minibatches is 0"),
        ("clip_range", -1.0, r"model\.clip_range is -1\.0"),
        ("max_grad_norm", 0.0, r"model\.max_grad_norm is 0\.0"),
    ],
)
def test_a_value_that_cannot_be_is_refused(name: str, value: float, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        small_ppo(snake_data(), **{name: value})


def test_a_model_of_other_spaces_is_refused(tmp_path: Path) -> None:
    model = small_ppo(snake_data())
    with pytest.raises(ConfigurationError, match="made for spaces"):
        trainer(tmp_path).fit(model, datamodule=cartpole_data())


def rollout_with_truncations(slots: list[list[int]]) -> Rollout:
    index = torch.tensor(slots)
    zeros, false = torch.zeros(4, 2), torch.zeros(4, 2, dtype=torch.bool)
    final = torch.full((*index.shape, 1), 7.0)
    parts = {"reward": zeros, "terminated": false, "truncated": false, "valid": ~false, "episode_start": false}
    extras = {"policy": torch.zeros(4, 2, 2)}
    return Rollout(
        torch.zeros(5, 2, 1), zeros.long(), **parts, final_obs=final, final_step=index, state={}, extras=extras,
        episodes=MetricVector((), zeros), env_steps=8, has_invalid_steps=False,
    )  # fmt: skip


def test_next_value_is_that_of_the_true_last_observation_in_every_used_slot() -> None:
    data = RolloutDataModule(f"{__name__}.Endless", num_envs=2, rollout_length=4)
    model = PPO(data.spaces)
    model.value = lambda obs: obs[:, 0]  # type: ignore[method-assign]
    rollout, values = rollout_with_truncations([[1, -1], [3, 0]]), torch.arange(10.0).view(5, 2)
    expected = torch.tensor([[2.0, 7.0], [7.0, 5.0], [6.0, 7.0], [7.0, 9.0]])
    assert torch.equal(model.next_value(rollout, values), expected)


def test_a_run_needs_no_logger_and_no_checkpoint(tmp_path: Path) -> None:
    model = fitted(tmp_path, snake_data())
    assert model.last_logged["train/learning_rate"] > 0
    assert {"train/policy_loss", "train/value_loss", "train/entropy", "train/approx_kl"} <= set(model.last_logged)
