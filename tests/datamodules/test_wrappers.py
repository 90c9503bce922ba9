"""data.wrappers and data.train_wrappers: what trains, what is evaluated, and what is saved."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium.wrappers import ClipReward, FlattenObservation, RepeatAction, TimeAwareObservation, TimeLimit

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.checkpoint_index import environment_of
from datamodules.rollout import RolloutDataModule
from datamodules.wrappers import EpisodicLife
from tests.support.small_runs import cartpole_data, small_ppo, trainer

HALF = partial(ClipReward, min_reward=0, max_reward=0.5)
SHORT = partial(TimeLimit, max_episode_steps=6)


def test_training_has_both_kinds_of_wrappers_and_evaluation_the_first(tmp_path: Path) -> None:
    data = cartpole_data(wrappers=[SHORT], train_wrappers=[HALF])
    run = trainer(tmp_path, max_steps=2, log_every_n_steps=1)
    model = small_ppo(data)

    run.fit(model, datamodule=data)
    trained = model.last_logged["rollout/return_mean"]
    (evaluated,) = run.validate(model, datamodule=data, verbose=False)

    assert evaluated["eval/return_mean"] == 6
    assert trained == 3


def test_episodes_of_lives_train_and_whole_games_are_evaluated(tmp_path: Path) -> None:
    data = RolloutDataModule(
        "tests.support.lives_env.Lives", train_wrappers=[EpisodicLife], num_envs=2, rollout_length=16, eval_episodes=2
    )
    run, model = trainer(tmp_path, max_steps=2, log_every_n_steps=1), small_ppo(data, num_minibatches=1)

    run.fit(model, datamodule=data)
    trained = model.last_logged["rollout/return_mean"]
    (evaluated,) = run.validate(model, datamodule=data, verbose=False)

    assert evaluated["eval/return_mean"] == 30, "a game of three lives, two steps each"
    assert trained < 15


def test_wrappers_are_saved_as_plain_data_in_checkpoints(tmp_path: Path) -> None:
    data = cartpole_data(wrappers=[SHORT], train_wrappers=[HALF])
    trainer(tmp_path, RunCheckpoint(), max_steps=1).fit(small_ppo(data), datamodule=data)

    (path,) = tmp_path.rglob("last.ckpt")
    saved = torch.load(path, weights_only=True)["datamodule_hyper_parameters"]

    assert saved["wrappers"] == [{"class_path": "gymnasium.wrappers.TimeLimit", "init_args": {"max_episode_steps": 6}}]
    assert [each["class_path"] for each in saved["train_wrappers"]] == ["gymnasium.wrappers.ClipReward"]


def test_another_wrapper_is_another_environment() -> None:
    base: dict[str, Any] = {"env": "CartPole-v1", "env_kwargs": None}
    plain, none = environment_of(base), environment_of({**base, "wrappers": None})
    wrapped = environment_of({**base, "wrappers": [{"class_path": "a.B"}]})
    trained = environment_of({**base, "train_wrappers": [{"class_path": "a.B"}]})
    assert plain == none == trained != wrapped


def test_wrappers_of_training_may_not_change_what_is_observed() -> None:
    with pytest.raises(ConfigurationError, match=r"data\.train_wrappers changes obs_shape of CartPole-v1"):
        cartpole_data(train_wrappers=[TimeAwareObservation])


def test_the_summary_names_them() -> None:
    data = cartpole_data(wrappers=[SHORT, FlattenObservation], train_wrappers=[partial(RepeatAction, num_repeats=1)])
    assert data.describe_wrappers() == "TimeLimit, FlattenObservation; RepeatAction in training"
    assert cartpole_data().describe_wrappers() == ""
