"""On a GPU: the stages of a curriculum change in a captured rollout, and cloning is captured with the update."""

import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from callbacks.opponents.stage_curriculum import StageCurriculum
from callbacks.performance.compile import Compile
from callbacks.run_control.trajectory_writer import write_trajectories
from datamodules.collect.evaluation import EvaluationDataset
from datamodules.vector.make_env import make_vector_env
from modules.ppo.auxiliary.behavior_cloning import BehaviorCloningLoss
from modules.ppo.ppo import PPO
from tests.callbacks.opponents.test_stage_curriculum import Stages, carball
from tests.gpu.test_graph import difference
from tests.support.small_runs import small_ppo, snake_data, trainer

pytestmark = pytest.mark.gpu


def test_a_captured_rollout_plays_the_new_stage(tmp_path: Path) -> None:
    data, stages = carball(12), Stages()
    curriculum = StageCurriculum("rollout/length_mean", threshold=8.0, min_env_steps=0)
    settings: dict[str, Any] = {"accelerator": "cuda", "log_every_n_steps": 2, "val_check_interval": 6}
    run = trainer(tmp_path, Compile("graph"), curriculum, stages, **settings)

    run.fit(small_ppo(data), datamodule=data)

    assert stages.cars[0] == 2 and stages.cars[-1] == 4 and sorted(stages.cars) == stages.cars


def cloned(root: Path, mode: Any) -> PPO:
    """PPO on Snake, which has no rounding: one float32 rounding of Car-ball's physics changes its weights by 0.03."""
    lightning.seed_everything(1, verbose=False)
    torch.set_float32_matmul_precision("highest")
    data = snake_data(num_envs=64, total_env_steps=64 * 8 * 10)
    model = small_ppo(data, auxiliary_losses=[BehaviorCloningLoss(str(root / "snake.npz"))])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*cannot be.*")  # a fall-back is a failure here
        trainer(root, Compile(mode), accelerator="cuda").fit(model, datamodule=data)
    return model


def test_captured_cloning_equals_eager_cloning(tmp_path: Path) -> None:
    data = snake_data()
    envs = make_vector_env(data.env, 8, env_kwargs=data.env_kwargs)
    play = EvaluationDataset(envs, small_ppo(data), 8, seed=1, record=True)
    write_trajectories(tmp_path / "snake.npz", play.run().trajectories)

    assert difference(cloned(tmp_path, "off"), cloned(tmp_path, "graph")) < 1e-4
