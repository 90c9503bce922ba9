"""A population of PPO: its members are the runs with their seeds, and everything that differs is refused."""

import math
import re
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import TensorBoardLogger

from app.monitor.curves import Curves
from callbacks.performance import thread_tuner
from callbacks.performance.compile import Compile
from callbacks.run_control.checkpoint import RunCheckpoint
from callbacks.run_control.divergence_guard import DivergenceGuard, TrainingDiverged
from callbacks.video.episode_video import EpisodeVideo
from datamodules.core.errors import ConfigurationError
from modules.networks.base import FeedForward
from modules.networks.cnn import CNN
from modules.networks.recurrent import LSTM
from modules.ppo.auxiliary.l2_init import L2InitLoss
from modules.ppo.population import PPOPopulation
from modules.ppo.ppo import PPO
from tests.support.small_runs import cartpole_data, snake_data, trainer

SEEDS = [3, 1, 8]
SETTINGS: dict[str, Any] = {"update_epochs": 2, "num_minibatches": 4, "learning_rate": 1e-3, "max_grad_norm": 0.3}
PLANES = {"dim": 6, "distance_to_border": 2, "observation": "planes"}


def small_cnn(shape: tuple[int, ...]) -> CNN:
    return CNN(shape, channels=(4, 8), hidden=(16,))


def lstm(shape: tuple[int, ...]) -> LSTM:
    return LSTM(shape, 8)


def dropout(shape: tuple[int, ...]) -> FeedForward:
    return FeedForward(torch.nn.Sequential(torch.nn.Linear(shape[0], 4), torch.nn.Dropout(0.1)), 4)


def batch_norm(shape: tuple[int, ...]) -> FeedForward:
    return FeedForward(torch.nn.Sequential(torch.nn.Linear(shape[0], 4), torch.nn.BatchNorm1d(4)), 4)


def fitted(root: Path, seeds: list[int] | int, *callbacks: Any, env_kwargs: Any = None, **settings: Any) -> Any:
    """A population of the seeds, or PPO with one seed, after ten iterations with an evaluation after each fifth."""
    lightning.seed_everything(seeds if isinstance(seeds, int) else 0, verbose=False)
    data = snake_data(**({} if env_kwargs is None else {"env_kwargs": env_kwargs}))
    settings = {**SETTINGS, "learning_rate_schedule": "linear", **settings}
    model = PPO(data.spaces, **settings) if isinstance(seeds, int) else PPOPopulation(data.spaces, seeds, **settings)
    logger = TensorBoardLogger(root, "", "alone" if isinstance(seeds, int) else "", default_hp_metric=False)
    trainer(root, *callbacks, manual_backward=False, logger=logger, val_check_interval=5).fit(model, datamodule=data)
    return model


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found = Curves(folder)
    found.refresh()
    return {tag: curve.points for tag, curve in found.by_tag.items()}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"share_torso": True, "value_clip_range": 0.2},
        {"minibatch_order": "strided", "clip_range_schedule": "linear", "entropy_coef_schedule": "linear"},
        {"num_minibatches": 1, "learning_rate_warmup": 0.5},
        {"network": small_cnn, "env_kwargs": PLANES},
    ],
)
def test_members_equal_the_runs_with_their_seeds(tmp_path: Path, settings: dict[str, Any]) -> None:
    population = fitted(tmp_path, SEEDS, **settings)

    for index, seed in enumerate(SEEDS):
        alone = fitted(tmp_path / str(seed), seed, **settings)
        for one, all_members in zip(alone.parameters(), population.parameters(), strict=True):
            torch.testing.assert_close(all_members[index], one, atol=1e-5, rtol=1e-5)
        own, expected = curves(tmp_path / f"seed_{seed}"), curves(tmp_path / str(seed) / "alone")
        assert own.keys() == expected.keys() and {"rollout/return_mean", "eval/return_mean"} < own.keys()
        for tag, points in expected.items():
            assert own[tag] == [(step, pytest.approx(value, abs=1e-3, rel=1e-3)) for step, value in points], tag
    assert (population.env_steps, population.updates) == (alone.env_steps, alone.updates) == (1280, alone.updates)
    assert max(value for _, value in own["train/grad_norm"]) > SETTINGS["max_grad_norm"], "nothing was clipped"


@pytest.mark.parametrize(("value", "said"), [(math.nan, "train/\\w+ is nan"), (-1e4, "moved by .* nats")])
def test_a_member_that_diverges_is_named_by_its_seed(tmp_path: Path, value: float, said: str) -> None:
    class Spoils(Callback):
        def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
            if math.isfinite(value):
                module.last_training_log = module.last_training_log | {"train/approx_kl/seed_1": value}
            else:
                with torch.no_grad():
                    next(module.parameters())[1].fill_(value)

    with pytest.raises(TrainingDiverged, match=rf"{said}.* \(the agent of seed 1\)"):
        fitted(tmp_path, SEEDS, Spoils(), DivergenceGuard())


def test_the_own_log_of_a_population_has_the_means_of_its_members(tmp_path: Path) -> None:
    fitted(tmp_path, SEEDS)

    own, members = curves(tmp_path), [curves(tmp_path / f"seed_{seed}") for seed in SEEDS]
    for tag in ("eval/return_mean", "rollout/return_mean", "train/entropy"):
        ends = [member[tag][-1][1] for member in members]
        assert own[tag][-1][1] == pytest.approx(sum(ends) / len(ends)) and len({*ends}) > 1


def test_a_compiled_population_equals_an_eager_one(tmp_path: Path) -> None:
    eager = fitted(tmp_path / "eager", SEEDS)

    compiled = fitted(tmp_path / "compiled", SEEDS, Compile("default", backend="aot_eager"))

    for one, other in zip(eager.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)


def test_threads_are_not_tuned_by_a_policy_call_of_part_of_the_members(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_tuner, "most_threads", lambda ranks: 2)

    assert fitted(tmp_path, SEEDS, thread_tuner.ThreadTuner()).env_steps == 1280


def test_the_random_state_of_the_process_does_not_change() -> None:
    data = snake_data()
    states = []
    for seeds in ([1], [2, 3, 4]):
        torch.manual_seed(5)
        PPOPopulation(data.spaces, seeds)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"network": lstm, "share_torso": True}, "a recurrent network"),
        ({"network": dropout}, "a network with dropout"),
        ({"network": batch_norm}, "a network with buffers"),
        ({"normalize_obs": True}, "model.normalize_obs"),
        ({"normalize_reward": True}, "model.normalize_reward"),
        ({"reward_centering": 0.01}, "model.reward_centering"),
        ({"auxiliary_losses": [L2InitLoss()]}, "model.auxiliary_losses"),
        ({"target_kl": 0.01}, "model.target_kl"),
        ({"advantage": "vtrace"}, "model.advantage vtrace"),
        ({"priority_alpha": 0.5}, "model.priority_alpha"),
        ({"num_microbatches": 2}, "model.num_microbatches"),
        ({"refresh_values": True, "value_clip_range": 0.2}, "model.refresh_values"),
    ],
)
def test_settings_that_do_not_vmap_are_refused(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigurationError, match=f"A population cannot be trained with ({what}): change that, or"):
        PPOPopulation(snake_data().spaces, [1, 2], **settings)


@pytest.mark.parametrize("seeds", [[], [1, 1], [-1, 1]])
def test_every_member_needs_a_seed_of_its_own(seeds: list[int]) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(f"model.seeds is {seeds}; give each member")):
        PPOPopulation(snake_data().spaces, seeds)


def test_several_agents_and_continuous_actions_are_refused() -> None:
    spaces = snake_data().spaces
    with pytest.raises(ConfigurationError, match="cannot be trained with several agents"):
        PPOPopulation({**spaces, "num_agents": 2}, [1])
    continuous: Any = {"action_type": "continuous", "action_sizes": [], "action_low": [-1.0], "action_high": [1.0]}
    with pytest.raises(ConfigurationError, match="PPOPopulation cannot act in this environment"):
        PPOPopulation({**spaces, **continuous}, [1])


@pytest.mark.parametrize(
    ("data", "callbacks", "trainer_settings", "sentence"),
    [
        (cartpole_data(), (), {}, "A population needs an on-device environment of one agent"),
        (snake_data(policy_lag=1), (), {}, "cannot be trained with data.policy_lag 1"),
        (snake_data(), (), {"precision": "bf16-mixed"}, "cannot be trained with trainer.precision bf16-mixed"),
        (snake_data(), (EpisodeVideo(),), {}, "cannot be trained with the callback EpisodeVideo"),
        (snake_data(), (RunCheckpoint(),), {}, "cannot be trained with the callback RunCheckpoint"),
        (snake_data(), (EarlyStopping("eval/return_mean"),), {}, "cannot be trained with the callback EarlyStopping"),
    ],
)
def test_data_and_trainers_that_do_not_fit_are_refused(
    tmp_path: Path, data: Any, callbacks: tuple[Any, ...], trainer_settings: dict[str, Any], sentence: str
) -> None:
    model = PPOPopulation(data.spaces, [1, 2], **SETTINGS)

    with pytest.raises(ConfigurationError, match=sentence):
        trainer(tmp_path, *callbacks, **trainer_settings).fit(model, datamodule=data)


def test_an_optimizer_that_is_not_elementwise_is_refused(tmp_path: Path) -> None:
    data = snake_data()
    model = PPOPopulation(data.spaces, [1, 2], optimizer=lambda params: torch.optim.Adamax(params), **SETTINGS)

    with pytest.raises(ConfigurationError, match="cannot be trained with an optimizer that is not elementwise"):
        trainer(tmp_path).fit(model, datamodule=data)


def test_a_population_is_not_tested_itself(tmp_path: Path) -> None:
    data = snake_data()

    with pytest.raises(ConfigurationError, match="A population is only trained: test"):
        trainer(tmp_path).test(PPOPopulation(data.spaces, [1, 2]), datamodule=data)


def test_members_are_created_on_one_thread() -> None:
    threads, before = [], torch.get_num_threads()
    torch.set_num_threads(2)

    def network(shape: tuple[int, ...]) -> CNN:
        threads.append(torch.get_num_threads())
        return small_cnn(shape)

    try:
        PPOPopulation(snake_data(env_kwargs=PLANES).spaces, SEEDS, network=network)
        assert threads[-len(SEEDS) :] == [1] * len(SEEDS) and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
