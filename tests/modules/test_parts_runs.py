"""Every algorithm learns from observations of several parts with its default network."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from callbacks.run_control.checkpoint import RunCheckpoint
from datamodules.base import EnvDataModule
from datamodules.core.errors import ConfigurationError
from datamodules.core.types import PolicyInput
from datamodules.replay import ReplayDataModule
from datamodules.rollout import RolloutDataModule
from modules.active_dynamics.active_dynamics import ActiveDynamics
from modules.active_dynamics.observed_model import FullyObservedModel
from modules.base.algorithm import Algorithm
from modules.dqn.dqn import DQN
from modules.dqn.pqn import PQN
from modules.networks.heads.multi_input_critic import MultiInputCritic
from modules.networks.mlp import MLP
from modules.networks.multi_input import MultiInput
from modules.networks.recurrent import LSTM
from modules.ppo.ppo import PPO
from modules.sac.curiosity import Curiosity
from modules.sac.sac import SAC
from modules.sac_options.sac_options import SACOptions
from tests.support.small_runs import trainer, weights_hash

REACH, BOX = "tests.support.parts_env.Reach", "tests.support.parts_env.BoxReach"


def rollouts(env: str = REACH, **changes: Any) -> RolloutDataModule:
    sizes = {"num_envs": 4, "rollout_length": 16, "total_env_steps": 384, "eval_episodes": 4, "backend": "sync"}
    return made(RolloutDataModule, env, **{**sizes, **changes})


def replay(env: str = REACH, **changes: Any) -> ReplayDataModule:
    sizes = {"num_envs": 4, "train_freq": 4, "batch_size": 16, "replay_ratio": 4, "capacity": 512, "n_step": 1}
    run = {"total_env_steps": 128, "learning_starts": 32, "eval_episodes": 4, "backend": "sync"}
    return made(ReplayDataModule, env, **{**sizes, **run, **changes})


def made(kind: Any, env: str, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the text that is dropped
        return kind(env, **settings)


RUNS: dict[str, Any] = {
    "ppo": (rollouts, partial(PPO, normalize_obs=True)),
    "ppo shared": (rollouts, partial(PPO, share_torso=True)),
    "ppo recurrent": (rollouts, partial(PPO, network=LSTM, share_torso=True)),
    "ppo box": (partial(rollouts, BOX), PPO),
    "ppo policy lag": (partial(rollouts, policy_lag=1), PPO),
    "ppo pool": (partial(rollouts, backend="pool"), PPO),
    "ppo device": (partial(rollouts, "tests.support.parts_env.TensorReach", backend="device", rollout_length=8), PPO),
    "dqn": (partial(replay, n_step=2, priority_alpha=0.5), DQN),
    "pqn": (rollouts, PQN),
    "pqn recurrent": (rollouts, partial(PQN, network=LSTM, num_minibatches=4)),
    "sac": (partial(replay, BOX), partial(SAC, normalize_obs=True)),
    "sac discrete": (replay, SAC),
    "sac curious": (partial(replay, BOX), partial(SAC, curiosity=Curiosity)),
    "options": (partial(replay, BOX), SACOptions),
    "options discrete": (replay, SACOptions),
}


def fitted(root: Path, run: str, *callbacks: Any, ckpt_path: Path | None = None, **changes: Any) -> Algorithm:
    make_data, make_model = RUNS[run]
    lightning.seed_everything(1, verbose=False)
    data: EnvDataModule = make_data()
    model: Algorithm = make_model(data.spaces)
    trainer(root, *callbacks, **changes).fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    return model


@pytest.mark.parametrize("run", RUNS)
def test_every_algorithm_trains_and_evaluates_with_its_default_network(run: str, tmp_path: Path):
    model = fitted(tmp_path, run, val_check_interval=4)
    assert model.updates > 0 and "eval/return_mean" in model.last_logged
    assert all(value == value for value in model.last_logged.values())
    assert any(isinstance(part, MultiInput) for part in model.modules())


@pytest.mark.parametrize("run", ["ppo device"])
def test_an_exact_resume_gives_equal_weights(run: str, tmp_path: Path):
    whole = fitted(tmp_path / "whole", run)
    fitted(tmp_path / "part", run, RunCheckpoint(), max_steps=5)
    resumed = fitted(tmp_path / "rest", run, ckpt_path=next((tmp_path / "part").rglob("last.ckpt")))
    assert weights_hash(whole) == weights_hash(resumed)


def test_the_whole_state_of_a_replay_of_parts_is_in_its_file(tmp_path: Path):
    first = fitted(tmp_path, "dqn", RunCheckpoint(), max_steps=4)
    again = fitted(tmp_path, "dqn", ckpt_path=next(tmp_path.rglob("last.ckpt")))
    assert again.env_steps == 128 > first.env_steps


@pytest.mark.parametrize("run", ["ppo", "sac", "options"])
def test_a_loaded_model_acts_as_before(run: str, tmp_path: Path):
    model = fitted(tmp_path, run, RunCheckpoint())
    loaded = type(model).load_from_checkpoint(next(tmp_path.rglob("last.ckpt")))
    obs = {"goal": torch.arange(5), "place": torch.arange(5.0).unsqueeze(1)}
    inputs = PolicyInput(obs, model.initial_state(5), torch.ones(5, dtype=torch.bool))
    model.modes.eval_()
    assert torch.equal(model.act(inputs, greedy=True)[0].action, loaded.act(inputs, greedy=True)[0].action)


def test_predictions_hold_every_part_in_its_own_dtype(tmp_path: Path):
    data = rollouts()
    (batch,) = trainer(tmp_path).predict(PPO(data.spaces), datamodule=data)
    episode = batch.trajectories[0]
    assert episode["obs/goal"].shape == (9,) and episode["obs/goal"].dtype == torch.int64
    assert episode["obs/place"].shape == (9, 1) and episode["action"].shape == (8,)
    moves = 2 * episode["action"] - 1
    assert torch.equal(episode["obs/place"][1:, 0], (episode["obs/place"][:-1, 0] + moves).clamp(0, 4))


def test_networks_are_chosen_a_part_each():
    data = replay(BOX)
    encoders = {"place": partial(MLP, hidden=(8,))}
    critic = partial(MultiInputCritic, encoders=encoders)
    model = SAC(data.spaces, network=partial(MultiInput, encoders=encoders, torso=MLP), critic=critic)
    assert model.network.parts.features == model.critic.parts.features == 5 + 8
    assert type(SAC(data.spaces).network.torso) is MLP and SAC(data.spaces).network.features == 256


def test_active_dynamics_refuses_parts_by_name():
    with pytest.raises(ConfigurationError, match=r"ActiveDynamics .* have the parts goal, place: wrap"):
        ActiveDynamics(replay(BOX).spaces, model=FullyObservedModel.__new__(FullyObservedModel))


def test_an_observation_that_is_not_finite_is_named_by_its_part(tmp_path: Path):
    data = rollouts("tests.support.parts_env.Lost")
    with pytest.raises(ConfigurationError, match=r"an observation with nan at place 0 of place in environment 0"):
        trainer(tmp_path).fit(PPO(data.spaces), datamodule=data)
