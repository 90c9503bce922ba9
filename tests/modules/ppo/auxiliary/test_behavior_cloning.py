"""Behaviour cloning: the loss is its definition, imitates stored play, fades, resumes, and refuses misfits."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from callbacks.performance.compile import Compile
from callbacks.run_control.trajectory_writer import write_trajectories
from datamodules.collect.evaluation import EvaluationDataset
from datamodules.core.errors import ConfigurationError
from datamodules.core.files.episode_files import read_episodes
from datamodules.core.types import PolicyInput
from datamodules.envs.carball.chaser import Chaser
from datamodules.rollout import RolloutDataModule
from datamodules.vector.make_env import make_vector_env
from modules.ppo.auxiliary.base import ForwardPass
from modules.ppo.auxiliary.behavior_cloning import BehaviorCloningLoss
from modules.ppo.ppo import PPO
from tests.modules.base.test_training_loop import SaveAt
from tests.support.auxiliary_runs import RECURRENT
from tests.support.small_runs import cartpole_data, small_ppo, trainer, weights_hash

ITERATIONS = 6


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Games of the chaser against itself."""
    path = tmp_path_factory.mktemp("stored") / "chaser.npz"
    envs = make_vector_env("Carball-v0", 8, env_kwargs={"mode": "1v1", "time_limit": 100})
    play = EvaluationDataset(envs, Chaser(envs.spaces), 8, seed=1, record=True)
    write_trajectories(path, play.run().trajectories)
    return str(path)


def carball() -> RolloutDataModule:
    sizes = {"num_envs": 8, "rollout_length": 8, "total_env_steps": 64 * ITERATIONS, "eval_episodes": 2}
    return RolloutDataModule("Carball-v0", env_kwargs={"mode": "1v0"}, **sizes)


def fit(root: Path, *callbacks: Any, losses: Any = None, ckpt_path: Path | None = None, **changes: Any) -> PPO:
    torch.manual_seed(0)
    data = carball()
    model = small_ppo(data, auxiliary_losses=losses, **{"learning_rate_schedule": "constant", **changes})
    run = trainer(root, *callbacks, log_every_n_steps=1)
    run.fit(model, datamodule=data, ckpt_path=ckpt_path, weights_only=True)
    return model


def likelihood(model: PPO, stored: str) -> float:
    """Mean log-likelihood of the stored actions."""
    episodes = read_episodes(stored)
    step = torch.arange(len(episodes.action))
    obs = episodes.obs[step + torch.bucketize(step, episodes.episode_start[1:], right=True)]
    with torch.no_grad():
        policy = model.policy_and_value(PolicyInput(obs, {}, torch.zeros(len(obs), dtype=torch.bool)))[0]
        return float(policy.log_prob(episodes.action).mean())


def test_the_loss_is_its_definition(stored: str, tmp_path: Path) -> None:
    loss, data = BehaviorCloningLoss(stored, coef=3.0, anneal_env_steps=100), carball()
    model = small_ppo(data)
    model.trainer = trainer(tmp_path)
    model.trainer.datamodule = data
    loss.on_fit_start(model)
    loss.update_schedule(25)
    index = torch.arange(len(loss.action))
    batch: Any = type("Batch", (), {"extras": {loss.name: {"index": index}}})

    term, (mean, share) = loss.loss(model, batch, ForwardPass(torch.zeros(0), None, torch.zeros(0)))  # type: ignore[arg-type]

    assert float(share) == 0.75
    assert float(mean) == pytest.approx(-likelihood(model, stored), rel=1e-5)
    assert float(term) == pytest.approx(0.75 * 3 * float(mean), rel=1e-5)


def test_stored_actions_become_likely(stored: str, tmp_path: Path) -> None:
    without = fit(tmp_path)
    cloned = fit(tmp_path, losses=[BehaviorCloningLoss(stored, constant_env_steps=10_000)], learning_rate=3e-3)

    assert likelihood(cloned, stored) > likelihood(without, stored) + 3
    assert cloned.last_logged["behavior_cloning/share"] == 1 and "behavior_cloning/loss" in cloned.last_logged


def test_a_share_of_zero_leaves_the_policy_to_ppo(stored: str, tmp_path: Path) -> None:
    long, short = (fit(tmp_path, losses=[BehaviorCloningLoss(stored, anneal_env_steps=steps)]) for steps in (10_000, 1))

    assert likelihood(short, stored) < likelihood(long, stored)
    assert short.last_logged["behavior_cloning/share"] == 0


def test_resume_equals_the_uninterrupted_run_bit_for_bit(stored: str, tmp_path: Path) -> None:
    path = tmp_path / "k.ckpt"
    whole = fit(tmp_path, losses=[BehaviorCloningLoss(stored)])
    fit(tmp_path, SaveAt(3, path, stop=True), losses=[BehaviorCloningLoss(stored)])

    resumed = fit(tmp_path, losses=[BehaviorCloningLoss(stored)], ckpt_path=path)

    assert weights_hash(resumed) == weights_hash(whole)


def test_microbatches_give_the_same_weights(stored: str, tmp_path: Path) -> None:
    whole, halves = (fit(tmp_path, losses=[BehaviorCloningLoss(stored)], num_microbatches=number) for number in (1, 2))

    for one, other in zip(whole.parameters(), halves.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)


def test_segments_of_a_feed_forward_network_are_joined_too(stored: str, tmp_path: Path) -> None:
    model = fit(tmp_path, losses=[BehaviorCloningLoss(stored)], advantage="vtrace", bptt_length=4)

    assert model.last_logged["behavior_cloning/loss"] > 0


def test_the_compiled_loss_equals_the_eager_one(stored: str, tmp_path: Path) -> None:
    eager = fit(tmp_path, losses=[BehaviorCloningLoss(stored)])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*cannot be.*")  # a fall-back is a failure here
        compiled = fit(tmp_path, Compile("default", backend="eager"), losses=[BehaviorCloningLoss(stored)])

    for one, other in zip(eager.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_episodes_of_other_precision_are_read_as_those_of_the_environment(stored: str, tmp_path: Path) -> None:
    path = tmp_path / "double.npz"
    with np.load(stored) as file:
        columns = {name: file[name].copy() for name in file.files}
    columns["obs"], columns["action"] = columns["obs"].astype(np.float64), columns["action"].astype(np.int32)
    np.savez(path, **columns)

    double, single = (fit(tmp_path, losses=[BehaviorCloningLoss(str(each))]) for each in (path, stored))

    assert weights_hash(double) == weights_hash(single)


def test_what_does_not_fit_is_refused(stored: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="coef 0; it must be above 0"):
        BehaviorCloningLoss(stored, coef=0)
    with pytest.raises(ConfigurationError, match=r"no file nowhere\.npz"):
        fit(tmp_path, losses=[BehaviorCloningLoss("nowhere.npz")])
    with pytest.raises(ConfigurationError, match="needs a feed-forward network"):
        fit(tmp_path, losses=[BehaviorCloningLoss(stored)], **RECURRENT)
    data = cartpole_data()
    with pytest.raises(ConfigurationError, match="holds observations and actions of shapes"):
        trainer(tmp_path).fit(small_ppo(data, auxiliary_losses=[BehaviorCloningLoss(stored)]), datamodule=data)
