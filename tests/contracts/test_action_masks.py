"""No algorithm ever takes an action that its environment forbids, whatever steps the environments, at any time."""

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import lightning
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode

from datamodules.replay import ReplayDataModule
from datamodules.rollout import RolloutDataModule
from datamodules.vector.sync_vector_env import SerialVectorEnv
from modules.dqn.dqn import DQN
from modules.dqn.pqn import PQN
from modules.networks import GRU
from modules.ppo.ppo import PPO
from modules.sac.sac import SAC
from modules.sac_options.sac_options import SACOptions
from tests.support.counting_env import Counting
from tests.support.small_runs import trainer

ALGORITHMS = [PPO, PQN, DQN, SAC, SACOptions]
RECURRENT = [PPO, PQN, DQN]
SEQUENCES = {"sequence_length": 4, "burn_in": 1, "batch_size": 6}


class Strict(Counting):
    """Forbids one of three actions, another one at every step and none at every fifth; fails when it is taken.

    `mode` is for its vector environment.
    """

    def __init__(self, length: int = 7, end: str = "truncated", mode: AutoresetMode | None = None):
        super().__init__(length, end, Discrete(3))

    def forbidden(self) -> int | None:
        step = int(self.obs[0] + self.obs[1])
        return None if step % 5 == 4 else step % 3

    def info(self) -> dict[str, Any]:
        forbidden = self.forbidden()
        return {} if forbidden is None else {"action_mask": np.arange(3) != forbidden}

    def step(self, action: Any) -> Any:
        if action == self.forbidden():
            raise RuntimeError(f"action {action} is forbidden in {self.obs}")
        return super().step(action)


def strict_rows(num_envs: int, mode: AutoresetMode = AutoresetMode.NEXT_STEP, **kwargs: Any) -> SerialVectorEnv:
    """Several of them as a vector environment of their own."""
    return SerialVectorEnv([lambda: Strict(**kwargs)] * num_envs, mode)


gym.register("Strict-v0", Strict, vector_entry_point=strict_rows)


def data_for(algorithm: type, backend: str, **changes: Any) -> Any:
    settings: dict[str, Any] = {"backend": backend, "num_envs": 3, "total_env_steps": 180}
    settings |= {"eval_episodes": 6, **changes}
    if algorithm in (PPO, PQN):
        return RolloutDataModule(f"{__name__}:Strict-v0", **settings, rollout_length=6)
    settings = {"train_freq": 6, "batch_size": 18, "replay_ratio": 2, "learning_starts": 18} | settings
    return ReplayDataModule(f"{__name__}:Strict-v0", **settings)


def run(root: Path, algorithm: type, data: Any, **settings: Any) -> Any:
    lightning.seed_everything(1, verbose=False)
    settings |= {"num_minibatches": 3} if algorithm in (PPO, PQN) else {}
    model = algorithm(data.spaces, **settings)
    trainer(root, val_check_interval=3).fit(model, datamodule=data)
    return model


@pytest.mark.parametrize("backend", ["sync", "vector"])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.__name__)
def test_no_forbidden_action_is_taken_in_training_or_evaluation(tmp_path: Path, algorithm: type, backend: str) -> None:
    model = run(tmp_path, algorithm, data_for(algorithm, backend, eval_greedy=backend == "sync"))

    assert model.updates > 0 and "eval/return_mean" in model.last_logged


@pytest.mark.parametrize("backend", ["sync", "vector"])
@pytest.mark.parametrize("algorithm", RECURRENT, ids=lambda algorithm: algorithm.__name__)
def test_no_forbidden_action_is_taken_by_a_recurrent_network(tmp_path: Path, algorithm: Any, backend: str) -> None:
    shared = {"share_torso": True} if algorithm is PPO else {}
    sequences = SEQUENCES if algorithm.off_policy else {}
    data = data_for(algorithm, backend, eval_greedy=backend == "sync", **sequences)

    model = run(tmp_path, algorithm, data, network=partial(GRU, hidden=8, encoder=(8,)), **shared)

    assert model.updates > 0 and "eval/return_mean" in model.last_logged


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.DISABLED])
def test_nor_in_other_modes_of_beginning_episodes_and_after_a_limit_cut_them(
    tmp_path: Path, mode: AutoresetMode
) -> None:
    run(tmp_path, PPO, data_for(PPO, "vector", env_kwargs={"mode": mode}, eval_max_steps=4))


@pytest.mark.parametrize("changes", [{"n_step": 3}, {"n_step": 2, "priority_alpha": 0.6}], ids=str)
def test_masks_of_what_follows_a_window_are_those_of_its_observation(changes: dict[str, Any], tmp_path: Path) -> None:
    data = data_for(DQN, "sync", **changes)
    run(tmp_path, DQN, data)
    replay = data.dataset.replay

    found = replay.sample(replay.noise(4, 64, data.dataset.generator))

    for obs, masks in ((found.obs, found.extras), (found.next_obs, found.next_masks)):
        step = obs[..., :2].sum(-1).long()
        over = (obs[..., 1] == 7) if masks is found.next_masks else obs[..., 1] < 0
        for choice in range(3):
            allowed = (step % 3 != choice) | (step % 5 == 4) | over
            assert (masks["action_mask"][..., choice] == allowed).all()
