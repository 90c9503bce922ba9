"""On a GPU: an off-policy iteration that is captured whole equals the eager one."""

import warnings
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch

from callbacks.performance.compile import Compile
from modules.dqn.dqn import DQN
from tests.support.replay_fixtures import replay_data, small_dqn
from tests.support.small_runs import trainer

pytestmark = pytest.mark.gpu


def run(root: Path, mode: Any, data_changes: dict[str, Any], iterations: int = 16, **settings: Any) -> DQN:
    lightning.seed_everything(1, verbose=False)
    torch.set_float32_matmul_precision("highest")
    data = replay_data(num_envs=64, capacity=2048, total_env_steps=64 * 4 * iterations, **data_changes)
    model = small_dqn(data, **settings)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*cannot be.*")  # a fall-back is a failure here
        trainer(root, Compile(mode), accelerator="cuda").fit(model, datamodule=data)
    return model


@pytest.mark.parametrize(("alpha", "iterations"), [(0.0, 16), (0.6, 4)])  # rounding comes to change what is drawn
@pytest.mark.parametrize("settings", [{}, {"tau": 0.05}, {"double_q": False}], ids=str)
def test_captured_runs_equal_eager_ones(
    tmp_path: Path, alpha: float, iterations: int, settings: dict[str, Any]
) -> None:
    change = {"priority_alpha": alpha}
    eager, graph = (run(tmp_path, mode, change, iterations, **settings) for mode in ("off", "graph"))
    pairs = zip(eager.parameters(), graph.parameters(), strict=True)
    assert max(float((one - two).abs().max().detach()) for one, two in pairs) < 1e-4
    assert (eager.env_steps, eager.updates) == (graph.env_steps, graph.updates)


@pytest.mark.parametrize("storage", ["cpu", "disk"])
def test_a_replay_that_does_not_lie_on_the_gpu_is_learned_from_there(tmp_path: Path, storage: str) -> None:
    model = run(tmp_path, "off", {"storage": storage})
    assert model.updates > 0
